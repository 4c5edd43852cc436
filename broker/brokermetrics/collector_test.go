package brokermetrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/controllerd/controllerd/broker"
	"github.com/controllerd/controllerd/fencing"
	"github.com/controllerd/controllerd/internal/prom/promtest"
)

type still broker.Stats

func (s still) Stats() broker.Stats { return broker.Stats(s) }

func full() still {
	s := still{
		Registered: true, BrokerEpoch: 10, ControllerEpoch: 7, SinceRenewal: 2500 * time.Millisecond, SessionTTL: 10 * time.Second,
		Registrations: 1, Renewals: 2, SessionFailures: 3, Streams: 4, Working: 5, Proposals: 6,
		Counts:  fencing.Counts{Hosted: 7, Leading: 8, Offline: 9, Strays: 10, IsrShrinks: 11, IsrExpands: 12},
		Refused: map[string]int64{"STALE_CONTROLLER_EPOCH": 13, "STALE_BROKER_EPOCH": 0}, Decided: map[string]int64{"ADMITTED": 14},
		Failed: 16, StorageFailed: 15,
	}
	s.HandlerTime.Observe(time.Millisecond)
	return s
}

func TestCollector(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	c := New(full())
	r.MustRegister(c)
	c.Messages(2, 300)
	c.Messages(1, 200)
	want := map[string]string{
		"controllerd_broker_registered": "1", "controllerd_broker_epoch": "10", "controllerd_broker_controller_epoch": "7",
		"controllerd_broker_since_renewal_seconds": "2.5", "controllerd_broker_session_ttl_seconds": "10",
		"controllerd_broker_registrations_total": "1", "controllerd_broker_renewals_total": "2", "controllerd_broker_session_failures_total": "3",
		"controllerd_broker_streams": "4", "controllerd_broker_working_partitions": "5", "controllerd_broker_isr_proposals": "6",
		"controllerd_broker_partitions": "7", "controllerd_broker_leaders": "8", "controllerd_broker_offline_replicas": "9",
		"controllerd_broker_stray_replicas": "10", "controllerd_broker_isr_shrinks_total": "11", "controllerd_broker_isr_expands_total": "12",
		`controllerd_broker_commands_refused_total{reason="stale_controller_epoch"}`: "13",
		`controllerd_broker_commands_refused_total{reason="stale_broker_epoch"}`:     "0",
		`controllerd_broker_decisions_total{decision="admitted"}`:                    "14",
		`controllerd_broker_handler_failures_total{kind="storage"}`:                  "15",
		`controllerd_broker_handler_failures_total{kind="other"}`:                    "1",
		"controllerd_broker_handler_seconds_count":                                   "1",
		"controllerd_broker_messages_total":                                          "3",
		"controllerd_broker_message_bytes_total":                                     "500",
	}
	text := promtest.Scrape(t, r)
	for name, v := range want {
		if !strings.Contains(text, "\n"+name+" "+v+"\n") {
			t.Errorf("%s is not %s in:\n%s", name, v, text)
		}
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestDocs(t *testing.T) {
	promtest.Docs(t, "../../docs/METRICS.md", "brokers", Table())
}
