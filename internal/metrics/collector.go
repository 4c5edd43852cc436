package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/controllerd/controllerd/cluster"
	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/election"
	"github.com/controllerd/controllerd/internal/prom"
)

// Daemon is what is looked at: a controller.Controller. None of its methods
// waits.
type Daemon interface {
	Snapshot() *controller.Snapshot
	Leading() (cluster.Epoch, bool)
	Stepped() time.Duration
	QueueLength() int
}

// NewRegistry makes the registry of a daemon: its own metrics, those of its
// calls of etcd, of the Go runtime and of the process.
func NewRegistry(d Daemon, calls *Calls, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		prom.Collector(table, func() *look {
			l := &look{Snapshot: d.Snapshot(), now: election.Clock(), queue: d.QueueLength(), version: version, etcd: calls.stats()}
			epoch, leading := d.Leading()
			l.active = leading && epoch == l.Claim
			return l
		}),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// Table is the table of a daemon's metrics, for people.
func Table() string { return prom.Markdown(table) }
