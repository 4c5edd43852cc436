package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/controllerd/controllerd/broker/brokermetrics"
)

// exporter serves the metrics of a broker, if it is told where.
type exporter struct {
	l         net.Listener // nil: nowhere
	server    *http.Server
	served    chan error
	collector atomic.Pointer[brokermetrics.Collector]
}

// listenForMetrics opens the listener; empty: there is none.
func listenForMetrics(addr string) (*exporter, error) {
	e := &exporter{}
	if addr == "" {
		return e, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics: %w", err)
	}
	e.l, e.served = l, make(chan error, 1)
	return e, nil
}

// serve begins to serve what a broker shows, until close.
func (e *exporter) serve(of brokermetrics.Source) {
	c := brokermetrics.New(of)
	e.collector.Store(c)
	if e.l == nil {
		return
	}
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { e.served <- e.server.Serve(e.l) }()
}

// counted is a handler whose requests count as messages.
func (e *exporter) counted(handle func(context.Context, []byte) []byte) func(context.Context, []byte) []byte {
	return func(ctx context.Context, request []byte) []byte {
		if c := e.collector.Load(); c != nil { // else there is no broker yet
			c.Messages(1, len(request))
		}
		return handle(ctx, request)
	}
}

// addr is where it serves, empty if nowhere.
func (e *exporter) addr() string {
	if e.l == nil {
		return ""
	}
	return e.l.Addr().String()
}

// close returns when nothing is served any more.
func (e *exporter) close() error {
	switch {
	case e.l == nil:
		return nil
	case e.server == nil:
		return e.l.Close()
	}
	err := e.server.Close()
	if served := <-e.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
