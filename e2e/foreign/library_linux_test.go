package foreign

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
)

// forwardingLibrary returns a library of Windows for amd64 that has one
// function. It is that of another library, so there is no code here.
// (Microsoft's PE format, "The .edata Section".)
func forwardingLibrary(name, function, to string) []byte {
	const (
		page, sector = 0x1000, 512 // in memory, and in the file
		base         = page        // of the one section, relative to the image
		functions    = 40          // after the directory: one address,
		names        = functions + 4
		ordinals     = names + 4 // and one ordinal, 0
		text         = ordinals + 4
	)
	le := binary.LittleEndian
	exports := make([]byte, text, sector)
	for at, value := range map[int]int{
		12:        base + text, // the library's name
		16:        1,           // the first ordinal
		20:        1,           // how many functions
		24:        1,           // and names
		28:        base + functions,
		32:        base + names,
		36:        base + ordinals,
		functions: base + text + len(name) + 1 + len(function) + 1, // within the section: a forwarder
		names:     base + text + len(name) + 1,
	} {
		le.PutUint32(exports[at:], uint32(value))
	}
	exports = append(exports, name+"\x00"+function+"\x00"+to+"\x00"...)

	header := pe.OptionalHeader64{
		Magic: 0x20b, ImageBase: 0x180000000, SectionAlignment: page, FileAlignment: sector,
		MajorOperatingSystemVersion: 6, MajorSubsystemVersion: 6,
		SizeOfImage: 2 * page, SizeOfHeaders: sector, Subsystem: pe.IMAGE_SUBSYSTEM_WINDOWS_GUI,
		DllCharacteristics: pe.IMAGE_DLLCHARACTERISTICS_NX_COMPAT, NumberOfRvaAndSizes: 16,
	}
	header.DataDirectory[pe.IMAGE_DIRECTORY_ENTRY_EXPORT] = pe.DataDirectory{VirtualAddress: base, Size: uint32(len(exports))}
	section := pe.SectionHeader32{
		Name: [8]uint8{'.', 'e', 'd', 'a', 't', 'a'}, VirtualSize: uint32(len(exports)), VirtualAddress: base,
		SizeOfRawData: sector, PointerToRawData: sector,
		Characteristics: pe.IMAGE_SCN_CNT_INITIALIZED_DATA | pe.IMAGE_SCN_MEM_READ,
	}
	const dosLen = 64
	dos := make([]byte, dosLen)
	copy(dos, "MZ")
	le.PutUint32(dos[60:], dosLen)

	var f bytes.Buffer
	f.Write(dos)
	f.WriteString("PE\x00\x00")
	for _, part := range []any{
		pe.FileHeader{
			Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(header)),
			Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE | pe.IMAGE_FILE_DLL,
		}, header, section,
	} {
		_ = binary.Write(&f, le, part) // a Buffer takes all
	}
	f.Write(make([]byte, sector-f.Len()))
	f.Write(exports[:sector])
	return f.Bytes()
}
