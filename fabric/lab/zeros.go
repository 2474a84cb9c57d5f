package lab

import (
	"fmt"
	"reflect"

	"github.com/gosoftroce/rocev2/fabric/tcp"
)

// notZero has the settings whose 0 in a Scenario stands for a default, and what
// a file may say there. A file that says 0 means something else.
var notZero = map[string]string{
	"until": "above 0; left out, the run ends when all flows have completed",
	"limit": "above 0; left out, it is 10s",
	"every": "above 0; left out, there are some 500 samples",
	"cores": fmt.Sprintf("1 to %d", MostCores),

	"network.hosts":       fmt.Sprintf("%s; left out, it is 2", hostsOfStar),
	"network.rate":        "1Mb/s to 8Tb/s; left out, it is 100Gb/s",
	"network.up_rate":     "1Mb/s to 8Tb/s; left out, it is rate",
	"network.link.rate":   "1Mb/s to 8Tb/s; left out, it is network.rate",
	"network.link.delay":  "above 0, and at most 1s; left out, it is network.delay",
	"network.link.count":  "at least 1; left out, it is 1",
	"network.delay":       "above 0, and at most 1s; left out, it is 1us",
	"network.up_delay":    "above 0, and at most 1s; left out, it is delay",
	"network.buffer":      "above 0; left out, it is the profile's",
	"network.queue_max":   "above 0; left out, the profile's rule alone holds",
	"network.flowlet_gap": "above 0; left out, it is 50us",
	"network.converge":    "above 0; left out, it is 1ms",

	"network.switch.credit_buffer":  "above 0; left out, it is what reserve and headroom have with pauses",
	"network.scale_up_rate":         "1Mb/s to 8Tb/s less network.rate; left out, GPUs of a machine have no network of their own",
	"network.scale_up_delay":        "above 0, and at most 1s; left out, it is network.delay",
	"network.machines_per_leaf":     "at least 1; left out, all machines",
	"network.oversubscription":      "1 to 1000; left out, it is 1, or what up_rate says",
	"network.core_oversubscription": "1 to 1000; left out, it is 1",

	"adapter.mtu":        "256, 512, 1024, 2048 or 4096; left out, it is 4096",
	"adapter.dscp":       "1 to 63; left out, it is the profile's",
	"adapter.window":     "above 0, and at most 1GiB; left out, it is the adapter's own",
	"adapter.notify":     "above 0; left out, it is 50us, or 4us with dcqcn-adapter",
	"adapter.min_probe":  "above 0; left out, it is 80us, or 1ms where nothing is lost",
	"adapter.timeout":    "1 to 31; left out, it is 14",
	"adapter.turn":       "above 0, and at most 64KiB; left out, a packet",
	"adapter.read_chunk": "above 0, and at most 1GiB; left out, it is the adapter's own",

	"network.class.weight": "1 to 65535; left out, it is the profile's",

	"traffic.dscp":        "1 to 63, or class = \"0\"; left out, it is the adapter's",
	"traffic.window":      "above 0, and at most 1GiB; left out, it is the adapter's",
	"traffic.queue_pairs": fmt.Sprintf("1 to %d; left out, it is 1", mostPairs),
	"traffic.rate":        "1Mb/s to 4Tb/s; left out, there is no limit",
	"traffic.iterations":  "at least 1; left out, it is 1",
	"traffic.group":       "how many ranks a machine has, at least 2",

	"traffic.tcp.mss":            fmt.Sprintf("%d to %d; left out, it is 1460", tcp.LeastMSS, tcp.MostMSS),
	"traffic.tcp.initial_window": "1 to 1000 segments; left out, it is 10",
	"traffic.tcp.min_rto":        "above 0, and at most 60s; left out, it is 1s",
	"traffic.tcp.ack_every":      fmt.Sprintf("1 to %d segments; left out, it is 2", tcp.MostAckFor),
	"traffic.tcp.ack_delay":      "above 0, and less than min_rto; left out, it is 40ms, or half of min_rto if that is less",

	"traffic.ranks":    "2 to the number of hosts; left out, it is all hosts",
	"traffic.until":    "above 0; left out, it is that of the scenario",
	"traffic.src_port": "49152 to 65535; left out, it is chosen from the connection",

	"failure.rate":  "1Mb/s to the rate of the cable",
	"failure.delay": "above 0: so much is added",
	"failure.loss":  "above 0, and at most 1: this share is lost more",
	"failure.until": "after at; left out, the cable stays down",
	"failure.every": "above 0, with for; left out, it comes once",
	"failure.for":   "above 0, and below every",
}

const hostsOfStar = "2 to 65535"

// zeros returns an error for the first setting of a text that is 0 and must not
// be.
func (s *Scenario) zeros() error { return s.zerosIn(reflect.ValueOf(s).Elem(), "", "") }

// zerosIn looks through a table. path is where it is in the text, name the same
// without numbers.
func (s *Scenario) zerosIn(table reflect.Value, path, name string) (all error) {
	for _, f := range settings(table.Type()) {
		v, at, full := table.FieldByIndex(f.Index), written(f), written(f)
		if path != "" {
			at, full = path+"."+at, name+"."+full
		}
		switch {
		case v.Kind() == reflect.Struct:
			all = join(all, s.zerosIn(v, at, full))
		case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
			for i := 0; i < v.Len() && len(mistakes(all)) < mostMistakes; i++ {
				all = join(all, s.zerosIn(v.Index(i), fmt.Sprintf("%s.%d", at, i), full))
			}
		case v.IsZero() && s.said[at] > 0 && notZero[full] != "":
			all = join(all, s.errorAt(s.lineAt(at), fmt.Errorf("%s is 0: it is %s", full, notZero[full])))
		}
	}
	return all
}
