package brokermetrics

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/internal/prom"
)

// Source is what is shown: a broker.Broker.
type Source interface{ Stats() broker.Stats }

// Collector is a prometheus.Collector of one broker. A registry takes one: its
// metrics do not name the broker, that is for the labels of the target.
type Collector struct {
	prometheus.Collector
	messages, bytes atomic.Int64
}

// New makes the collector of a broker. A scrape takes the same time however much
// the broker hosts.
func New(of Source) *Collector {
	c := &Collector{}
	c.Collector = prom.Collector(table, func() *look {
		return &look{Stats: of.Stats(), messages: c.messages.Load(), bytes: c.bytes.Load()}
	})
	return c
}

// Messages counts messages that the broker has taken in, of so many bytes in
// all. Nothing is counted unless the broker calls it; any goroutine may.
func (c *Collector) Messages(n, bytes int) {
	c.messages.Add(int64(n))
	c.bytes.Add(int64(bytes))
}

// look is what one scrape sees.
type look struct {
	broker.Stats
	messages, bytes int64
}

// each emits a counter with one label from a map.
func each(counts func(*look) map[string]int64) func(*look, prom.Emit) {
	return func(l *look, e prom.Emit) {
		m := counts(l)
		for _, k := range slices.Sorted(maps.Keys(m)) {
			e.Value(float64(m[k]), strings.ToLower(k))
		}
	}
}

// table are all metrics of a broker.
var table = []prom.Metric[*look]{
	{Name: "controllerd_broker_registered", Kind: prom.Gauge, Help: "1 if the last that the broker has heard of its session is that it stands",
		Read: prom.One(func(l *look) float64 {
			if l.Registered {
				return 1
			}
			return 0
		})},
	{Name: "controllerd_broker_epoch", Kind: prom.Gauge, Help: "broker epoch, 0 before the first registration",
		Read: prom.One(func(l *look) float64 { return float64(l.BrokerEpoch) })},
	{Name: "controllerd_broker_controller_epoch", Kind: prom.Gauge, Help: "highest controller epoch that the broker has heard of",
		Read: prom.One(func(l *look) float64 { return float64(l.ControllerEpoch) })},
	{Name: "controllerd_broker_since_renewal_seconds", Kind: prom.Gauge, Help: "time since the session was registered or renewed last, 0 before the first time",
		Read: prom.One(func(l *look) float64 { return l.SinceRenewal.Seconds() })},
	{Name: "controllerd_broker_session_ttl_seconds", Kind: prom.Gauge, Help: "how long the session outlives the last renewal",
		Read: prom.One(func(l *look) float64 { return l.SessionTTL.Seconds() })},
	{Name: "controllerd_broker_registrations_total", Kind: prom.Counter, Help: "registrations, each of which begins a session",
		Read: prom.One(func(l *look) float64 { return float64(l.Registrations) })},
	{Name: "controllerd_broker_renewals_total", Kind: prom.Counter, Help: "renewals of the session",
		Read: prom.One(func(l *look) float64 { return float64(l.Renewals) })},
	{Name: "controllerd_broker_session_failures_total", Kind: prom.Counter, Help: "attempts to register or to renew that failed and were repeated",
		Read: prom.One(func(l *look) float64 { return float64(l.SessionFailures) })},
	{Name: "controllerd_broker_streams", Kind: prom.Gauge, Help: "open streams of commands",
		Read: prom.One(func(l *look) float64 { return float64(l.Streams) })},
	{Name: "controllerd_broker_commands_refused_total", Kind: prom.Counter, Labels: []string{"reason"}, Help: "commands that the gate has refused as a whole: stale_controller_epoch, stale_broker_epoch, unavailable, inconsistent_cluster_id, wrong_broker",
		Read: each(func(l *look) map[string]int64 { return l.Refused })},
	{Name: "controllerd_broker_decisions_total", Kind: prom.Counter, Labels: []string{"decision"}, Help: "decisions of the gate on partitions of other commands: admitted, isr_adopted, already, inconsistent_topic_id, fenced_leader_epoch",
		Read: each(func(l *look) map[string]int64 { return l.Decided })},
	{Name: "controllerd_broker_partitions", Kind: prom.Gauge, Help: "partitions that the broker hosts",
		Read: prom.One(func(l *look) float64 { return float64(l.Hosted) })},
	{Name: "controllerd_broker_leaders", Kind: prom.Gauge, Help: "partitions that the broker leads",
		Read: prom.One(func(l *look) float64 { return float64(l.Leading) })},
	{Name: "controllerd_broker_offline_replicas", Kind: prom.Gauge, Help: "replicas whose storage has failed",
		Read: prom.One(func(l *look) float64 { return float64(l.Offline) })},
	{Name: "controllerd_broker_stray_replicas", Kind: prom.Gauge, Help: "replicas that nobody has assigned to the broker",
		Read: prom.One(func(l *look) float64 { return float64(l.Strays) })},
	{Name: "controllerd_broker_working_partitions", Kind: prom.Gauge, Help: "partitions whose handler runs, or is to",
		Read: prom.One(func(l *look) float64 { return float64(l.Working) })},
	{Name: "controllerd_broker_handler_seconds", Kind: prom.Histogram, Help: "how long handlers took to apply or to stop a partition",
		Read: func(l *look, e prom.Emit) { e.Durations(&l.HandlerTime) }},
	{Name: "controllerd_broker_handler_failures_total", Kind: prom.Counter, Labels: []string{"kind"}, Help: "handlers that failed: storage, other",
		Read: func(l *look, e prom.Emit) {
			e.Value(float64(l.StorageFailed), "storage")
			e.Value(float64(l.Failed-l.StorageFailed), "other")
		}},
	{Name: "controllerd_broker_isr_shrinks_total", Kind: prom.Counter, Help: "times that the ISR of a partition which the broker leads has lost members",
		Read: prom.One(func(l *look) float64 { return float64(l.IsrShrinks) })},
	{Name: "controllerd_broker_isr_expands_total", Kind: prom.Counter, Help: "times that the ISR of a partition which the broker leads has got members",
		Read: prom.One(func(l *look) float64 { return float64(l.IsrExpands) })},
	{Name: "controllerd_broker_isr_proposals", Kind: prom.Gauge, Help: "changes of ISRs that are proposed and not decided",
		Read: prom.One(func(l *look) float64 { return float64(l.Proposals) })},
	{Name: "controllerd_broker_messages_total", Kind: prom.Counter, Help: "messages taken in, if the broker counts them",
		Read: prom.One(func(l *look) float64 { return float64(l.messages) })},
	{Name: "controllerd_broker_message_bytes_total", Kind: prom.Counter, Help: "bytes of them",
		Read: prom.One(func(l *look) float64 { return float64(l.bytes) })},
}

// Table is the table of a broker's metrics, for people.
func Table() string { return prom.Markdown(table) }
