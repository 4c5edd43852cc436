package metrics

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// For how long the owner of the state may be busy with one step: more than busy,
// and what the daemon shows is old; more than hangs, and it will not come back.
const (
	busy  = 3 * time.Second
	hangs = 10 * time.Second
)

// Pages are the HTTP pages of a daemon:
//
//	/metrics  for Prometheus
//	/livez    200 unless the daemon hangs: then it should be started again
//	/readyz   200 if it can do its work: it has read the cluster, sees what
//	          happens, and etcd takes its writes
//	/leader   200 if it is the active controller, 503 if not. Its lease is looked
//	          at when the answer is made
//	/version  which build it is
//
// What is not 200 says why.
func Pages(d Daemon, r *prometheus.Registry, version string, log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.InstrumentMetricHandler(r, promhttp.HandlerFor(r, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.HTTPErrorOnError,
	})))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, "alive", silent(d, hangs)) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		say(w, "ready", append(silent(d, busy), d.Snapshot().Unfit...))
	})
	mux.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		epoch, leading := d.Leading()
		if !leading {
			say(w, "", []string{"not the active controller"})
			return
		}
		say(w, fmt.Sprintf("active under epoch %d", epoch), nil)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { say(w, version, nil) })
	return mux
}

// silent says that the owner has been busy with one step for too long, if it has.
func silent(d Daemon, most time.Duration) []string {
	if since := d.Stepped(); since > most {
		return []string{fmt.Sprintf("no step has come to its end for %v", since.Round(time.Second))}
	}
	return nil
}

// say answers with 200 and a word, or with 503 and what is wrong, one fault a
// line.
func say(w http.ResponseWriter, word string, faults []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if len(faults) == 0 {
		fmt.Fprintln(w, word)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	for _, f := range faults {
		fmt.Fprintln(w, f)
	}
}
