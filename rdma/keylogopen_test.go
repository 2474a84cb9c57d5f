package rdma

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"net/netip"
	"strconv"
	"strings"
)

// What follows opens a capture with a key log, and shares no code with this
// software: what it knows is what the documentation says.

// plainPacket is what was in a sealed packet.
type plainPacket struct {
	src, dst netip.Addr
	spi      uint32
	iv       uint64
	bth      []byte // BTH to the end of the payload
	icrcGood bool
}

// opcode, destQPN and psn read the BTH.
func (p *plainPacket) opcode() byte    { return p.bth[0] }
func (p *plainPacket) destQPN() uint32 { return binary.BigEndian.Uint32(p.bth[4:]) & 0xffffff }
func (p *plainPacket) psn() uint32     { return binary.BigEndian.Uint32(p.bth[8:]) & 0xffffff }

// openCapture opens what is sealed in a pcapng file. It returns how many
// packets of UDP port 4791 were in clear.
func openCapture(file []byte, log string) (list []plainPacket, inClear int, err error) {
	link := uint16(0)
	for len(file) >= 12 {
		kind, size := binary.LittleEndian.Uint32(file), binary.LittleEndian.Uint32(file[4:])
		if size < 12 || int(size) > len(file) {
			return nil, 0, fmt.Errorf("a block of %d bytes", size)
		}
		body := file[8 : size-4]
		file = file[size:]
		switch kind {
		case 1: // interface
			link = binary.LittleEndian.Uint16(body)
		case 6: // packet
			frame := body[20 : 20+binary.LittleEndian.Uint32(body[12:])]
			p, sealed, err := openFrame(link, frame, log)
			switch {
			case err != nil:
				return nil, 0, err
			case !sealed:
				inClear++
			default:
				list = append(list, p)
			}
		}
	}
	return list, inClear, nil
}

// openFrame opens the packet in a frame, if one of UDP port 4791 is sealed.
func openFrame(link uint16, frame []byte, log string) (p plainPacket, sealed bool, err error) {
	if link == 1 { // Ethernet
		frame = frame[14:]
	}
	ip := frame[:40]
	if frame[0]>>4 == 4 {
		ip = frame[:20]
		p.src, p.dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	} else {
		p.src, p.dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	}
	udp := frame[len(ip):]
	packet := udp[8:binary.BigEndian.Uint16(udp[4:])]
	if binary.BigEndian.Uint16(udp[2:]) != 4791 || packet[0] != 17 || packet[1] != 1 {
		return p, false, nil
	}
	p.spi, p.iv = binary.BigEndian.Uint32(packet[4:]), binary.BigEndian.Uint64(packet[8:])
	key, err := packetKey(log, p.spi, p.dst, packet[3]>>2&15)
	if err != nil {
		return p, true, err
	}
	if bits := []int{128, 256, 128, 256}[packet[3]>>2&15]; bits != 8*len(key) {
		return p, true, fmt.Errorf("a key of %d bytes for a packet of version %d", len(key), packet[3]>>2&15)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return p, true, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return p, true, err
	}
	clear := 16 + int(packet[2]&63)*4 // header, and what is authenticated alone
	inner := bytes.Clone(packet[16:clear])
	if inner, err = gcm.Open(inner, packet[4:16], packet[clear:], packet[:clear]); err != nil {
		return p, true, fmt.Errorf("SPI %#x, IV %d: %w", p.spi, p.iv, err)
	}
	end := len(inner) - 4
	p.bth = inner[8:end]
	p.icrcGood = binary.LittleEndian.Uint32(inner[end:]) == invariantCRC(ip, inner[:8], p.bth)
	return p, true, nil
}

// packetKey derives the key of a packet from that of its association (HKDF,
// RFC 5869, with SHA-256): each generation has a secret, from which its key is
// derived, and the next secret. The generation is in 7 bits of the SPI.
func packetKey(log string, spi uint32, dst netip.Addr, version byte) ([]byte, error) {
	key, err := loggedKey(log, spi&0xffffff, dst)
	if err != nil {
		return nil, err
	}
	secret := hmacOf([]byte("rocev2 psp"), key)
	for range spi >> 24 & 127 {
		secret = hmacOf(secret, []byte("next\x01"))
	}
	info := binary.BigEndian.AppendUint32([]byte{'k', 'e', 'y', version}, spi)
	return hmacOf(secret, append(info, 1))[:len(key)], nil
}

func hmacOf(key, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	return mac.Sum(nil)
}

// loggedKey finds the key of an association at an address, the last line of
// which counts.
func loggedKey(log string, spi uint32, dst netip.Addr) (key []byte, err error) {
	err = fmt.Errorf("no key for SPI %#x at %v", spi, dst)
	for line := range strings.Lines(log) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(f) != 3 || f[0] != "ROCEV2_PSP" {
			continue
		}
		number, addr, _ := strings.Cut(f[1], "@")
		n, failed := strconv.ParseUint(number, 0, 32)
		if failed != nil {
			return nil, failed
		}
		if uint32(n) == spi && addr == dst.String() {
			if key, err = hex.DecodeString(f[2]); err != nil {
				return nil, err
			}
		}
	}
	if len(key) != 16 && len(key) != 32 && err == nil {
		err = errors.New("a key of another length")
	}
	return key, err
}

// invariantCRC is the ICRC (IBTA A17.3.3, 7.8.1) of a packet of which an IP
// header came with another length and Identification: all that changes on the
// way counts as ones.
func invariantCRC(outer, udp, rest []byte) uint32 {
	ip := bytes.Clone(outer)
	length := len(udp) + len(rest) + 4
	if len(ip) == 20 {
		ip[1], ip[8] = 0xff, 0xff                             // TOS, TTL
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length)) // total length
		binary.BigEndian.PutUint16(ip[4:], 0)                 // Identification
		binary.BigEndian.PutUint16(ip[10:], 0xffff)           // checksum
	} else {
		ip[0], ip[1], ip[2], ip[3], ip[7] = ip[0]|0x0f, 0xff, 0xff, 0xff, 0xff // class, label, hop limit
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
	}
	udp, rest = bytes.Clone(udp), bytes.Clone(rest)
	udp[6], udp[7], rest[4] = 0xff, 0xff, 0xff // checksum; reserved byte of the BTH
	crc := crc32.ChecksumIEEE(bytes.Repeat([]byte{0xff}, 8))
	for _, part := range [][]byte{ip, udp, rest} {
		crc = crc32.Update(crc, crc32.IEEETable, part)
	}
	return crc
}
