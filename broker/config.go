package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/internal/unfenced"
)

// DefaultSessionTTL is how long a silent broker counts as live.
const DefaultSessionTTL = 10 * time.Second

// DefaultControlListen is loopback with a port of the system's choice.
const DefaultControlListen = "127.0.0.1:0"

// DefaultShutdownTimeout is for how long a broker that stops hands its
// leaderships over.
const DefaultShutdownTimeout = 15 * time.Second

// Config says who the broker is and how it reaches the cluster. ID, NodeUUID,
// Daemons and Handler have no default.
type Config struct {
	// ID is the broker id, 0 and above.
	ID cluster.BrokerID
	// NodeUUID names the node that owns the broker id. It must outlive the
	// process: another node cannot register under the id.
	NodeUUID string
	// ClusterUUID, if set, is the only cluster that the broker joins.
	// Otherwise it belongs to the first one that it registers in.
	ClusterUUID string

	// Daemons are the daemons to start from, "host:port" or any other target
	// that gRPC knows. A name may stand for several addresses. What the
	// daemons say about each other is added to them.
	Daemons []string
	// DialOptions are added to those for the daemons, after the default of
	// plain text.
	DialOptions []grpc.DialOption

	// ControlListen is where commands are served.
	ControlListen string
	// AdvertiseControl is where the controller reaches the control listener.
	// Default: the address of the listener. Only then is the broker taken for
	// dead before its session expires, when its connection breaks and the address
	// refuses new ones for 200 ms.
	AdvertiseControl string
	// ServerOptions are added to those of the control listener.
	ServerOptions []grpc.ServerOption

	// Endpoints are the listeners for everybody else, as metadata names them.
	Endpoints []Endpoint
	// Rack is the failure domain, empty if there is none.
	Rack string

	// SessionTTL is how long the broker counts as live after its last renewal.
	// The daemon decides what it accepts, 4 s to 60 s by default. The broker
	// renews four times as often.
	SessionTTL time.Duration
	// Healthy, if set, is asked before each renewal and registration. While it
	// fails, or does not return, the session is not renewed and ends.
	Healthy func(ctx context.Context) error

	// ShutdownTimeout is for how long a broker that stops tries to hand its
	// leaderships over to others, 5 s after each other if some are left: Kafka's
	// controlled shutdown. After it the broker leaves all the same. Negative: it
	// leaves at once.
	ShutdownTimeout time.Duration

	// Handler does what commands ask for.
	Handler Handler
	// Found are the replicas that an earlier process has left on the disks, nil
	// if that is not known. What no controller assigns of them becomes stray.
	// With them the Broker knows which replicas exist, and does not let the
	// handler create one that must not be; see SetStorageFailed.
	Found []HeldReplica
	// Observer, if set, hears of each decision of the gate, in the order of
	// admission. It is called under the gate's lock: it must be quick and must
	// not call methods of the Broker.
	Observer func(Observation)
	// Logger defaults to slog.Default().
	Logger *slog.Logger

	// Unfenced takes the gate out, for tests of this module. Others cannot make
	// a value of its type that does.
	Unfenced unfenced.Switch
}

func (c Config) withDefaults() Config {
	if c.SessionTTL == 0 {
		c.SessionTTL = DefaultSessionTTL
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.ControlListen == "" {
		c.ControlListen = DefaultControlListen
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// Validate reports all that is wrong.
func (c Config) Validate() error {
	var faults []error
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(c.ID < 0, "ID is %d, want 0 or above", c.ID)
	fault(!utf8.ValidString(c.NodeUUID), "NodeUUID %q is not UTF-8", c.NodeUUID)
	fault(!utf8.ValidString(c.Rack), "Rack %q is not UTF-8", c.Rack)
	fault(c.NodeUUID == "", "NodeUUID is empty: it binds the broker id to this node")
	fault(len(c.Daemons) == 0, "Daemons is empty: the broker would find no cluster")
	for i, d := range c.Daemons {
		fault(d == "", "Daemons[%d] is empty", i)
	}
	for i, e := range c.Endpoints {
		fault(!utf8.ValidString(e.Listener) || !utf8.ValidString(e.Address), "Endpoints[%d] is not UTF-8: %q and %q", i, e.Listener, e.Address)
		fault(e.Listener == "" || e.Address == "", "Endpoints[%d] needs a listener and an address, has %q and %q", i, e.Listener, e.Address)
	}
	fault(c.SessionTTL < 0, "SessionTTL is %v, want more than 0", c.SessionTTL)
	fault(c.SessionTTL > 0 && c.SessionTTL < time.Millisecond, "SessionTTL is %v, below the millisecond that it is counted in", c.SessionTTL)
	fault(c.Handler == nil, "Handler is nil: nobody would obey commands")
	if len(faults) > 0 {
		return fmt.Errorf("broker config: %w", errors.Join(faults...))
	}
	return nil
}
