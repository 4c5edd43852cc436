package metrics

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"time"
)

// Limits of a server of pages.
const (
	headerTimeout = 5 * time.Second
	idleTimeout   = time.Minute
	farewell      = time.Second // for answers that are under way when it stops
	maxHeader     = 16 << 10
)

// Serve answers on the listener until the context ends, and then until running
// answers are through, at most a second.
func Serve(ctx context.Context, l net.Listener, pages http.Handler) error {
	s := &http.Server{Handler: pages, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	err := s.Shutdown(limited)
	if err != nil { // somebody reads slowly
		err = s.Close()
	}
	<-served // http.ErrServerClosed
	return err
}

// Profiles are the pages of net/http/pprof. They tell much of what the process
// does, and slow it down: they have an address of their own.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}
