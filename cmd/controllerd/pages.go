package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"github.com/spf13/pflag"

	"github.com/controllerd/controllerd/controller"
	"github.com/controllerd/controllerd/internal/metrics"
)

// pagesConfig are the flags of serve about HTTP.
type pagesConfig struct{ metricsListen, adminListen string }

func (cfg *pagesConfig) addPagesFlags(f *pflag.FlagSet) {
	f.StringVar(&cfg.metricsListen, "metrics-listen", "", "address of the HTTP pages /metrics, /livez, /readyz, /leader and /version (default: none)")
	f.StringVar(&cfg.adminListen, "admin-listen", "", "address of the HTTP pages of /debug/pprof, loopback for good reasons (default: none)")
}

// pagesFaults is all that is wrong with them.
func (cfg *pagesConfig) pagesFaults() error {
	var faults []error
	for _, a := range []struct{ flag, addr string }{{"metrics-listen", cfg.metricsListen}, {"admin-listen", cfg.adminListen}} {
		if _, _, err := net.SplitHostPort(a.addr); a.addr != "" && err != nil {
			faults = append(faults, fmt.Errorf("--%s %q is not host:port", a.flag, a.addr))
		}
	}
	return errors.Join(faults...)
}

// httpPages are the listeners that serve HTTP, nil where there is none.
type httpPages struct {
	metrics, admin net.Listener
	calls          *metrics.Calls
	serving        sync.WaitGroup
}

// listen opens the listeners.
func (cfg *pagesConfig) listen() (*httpPages, error) {
	p := &httpPages{calls: &metrics.Calls{}}
	for _, l := range []struct {
		at   *net.Listener
		addr string
	}{{&p.metrics, cfg.metricsListen}, {&p.admin, cfg.adminListen}} {
		if l.addr == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listen on %s: %w", l.addr, err), p.close())
		}
		*l.at = listener
	}
	return p, nil
}

// close gives the listeners up, if nothing serves on them yet.
func (p *httpPages) close() error {
	var err error
	for _, l := range []net.Listener{p.metrics, p.admin} {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
	}
	return err
}

// serve answers until the context ends; wait waits for that.
func (p *httpPages) serve(ctx context.Context, daemon *controller.Controller, log *slog.Logger) {
	start := func(l net.Listener, what string, pages http.Handler) {
		log.Info("serving "+what, "address", l.Addr().String())
		p.serving.Go(func() {
			if err := metrics.Serve(ctx, l, pages); err != nil {
				log.Error(what+" are not served any more", "error", err)
			}
		})
	}
	if p.metrics != nil {
		version := buildVersion().Version
		start(p.metrics, "metrics", metrics.Pages(daemon, metrics.NewRegistry(daemon, p.calls, version), version, log))
	}
	if p.admin != nil {
		if exposed(p.admin.Addr()) {
			log.Warn("PROFILES BEYOND LOOPBACK: everybody who reaches this address can look into the process and slow it down",
				"address", p.admin.Addr().String())
		}
		start(p.admin, "profiles", metrics.Profiles())
	}
}

// wait returns when nothing is served any more.
func (p *httpPages) wait() { p.serving.Wait() }

// exposed reports whether others than this host reach an address.
func exposed(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}
