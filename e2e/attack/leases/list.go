package leases

// Scale is how much of an attack is run.
type Scale struct {
	Packets int // forged ones, or messages, at least
	Clients int // that come to the Unix socket
	Rounds  int // messages, there and back, of the leaseholders meanwhile, at least
	Dials   int // meanwhile, at least
}

// Short is for tests, Long for figures.
var (
	Short = Scale{Packets: 3000, Clients: 300, Rounds: 20, Dials: 2}
	Long  = Scale{Packets: 200_000, Clients: 5000, Rounds: 500, Dials: 50}
)

// Options say what is attacked.
type Options struct {
	Daemon string // path of a rocev2d
	Scale  Scale
	Seed   uint64
}

// Attack is one way to harm an owner, or those that lease of it.
type Attack struct {
	Name string
	What string // what is done, and by which side
	Must string // what must hold, beside what must hold always

	run func(*trial)
}

// Always is what must hold whatever the attack is.
const Always = "the leaseholders' traffic goes on, each byte is right, for at most twice the packets that it takes alone; " +
	"dials succeed; the owner then has the leases and files that it had, and grants new ones"
