package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/controllerd/controllerd/rpc"
)

// manager is the service manager that started the daemon, if it speaks
// sd_notify(3), as systemd does with Type=notify. It hears READY=1 once the
// daemon has read its cluster from etcd, STATUS= whenever the role changes,
// STOPPING=1, and beats.
type manager struct {
	core rpc.Core
	log  *slog.Logger
}

// tell sends one message. It reports whether there is a manager.
func (m manager) tell(message string) bool {
	told, err := daemon.SdNotify(false, message)
	if err != nil {
		m.log.Warn("the service manager does not listen", "message", message, "error", err)
	}
	return told || err != nil
}

// follow tells the manager how the daemon does, until the context ends, and
// then that it stops.
func (m manager) follow(ctx context.Context) {
	var now role
	if !m.tell("STATUS=" + now.String()) {
		return
	}
	go m.beat(ctx)
	for ready := false; ; {
		err := m.core.Await(ctx, func(v rpc.View) bool {
			was := now
			now = roleOf(v)
			return now != was
		})
		if err != nil {
			break
		}
		message := "STATUS=" + now.String()
		if now.loaded && !ready {
			ready, message = true, daemon.SdNotifyReady+"\n"+message
		}
		m.tell(message)
	}
	m.tell(daemon.SdNotifyStopping + "\nSTATUS=stopping in order")
}

// beat proves to a watchdog that the daemon lives, twice in each of its
// intervals: each beat is sent when a token has gone through the queue of the
// goroutine that decides everything. As long as etcd has not answered, the
// manager waits on for READY=1 instead, interval by interval.
func (m manager) beat(ctx context.Context) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		m.log.Warn("no beats for the watchdog of the service manager", "error", err)
	}
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(max(interval/2, time.Millisecond))
	defer tick.Stop()
	for {
		loaded := false
		if m.core.Await(ctx, func(v rpc.View) bool { loaded = v.Image.Rev > 0; return true }) != nil {
			return
		}
		if loaded {
			m.tell(daemon.SdNotifyWatchdog)
		} else {
			m.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", interval.Microseconds()))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// role is what the status says.
type role struct {
	loaded, active, healthy bool
	epoch                   int64
	holder                  string // the id in the seat's key
	held                    bool
}

func roleOf(v rpc.View) role {
	r := role{loaded: v.Image.Rev > 0, active: v.Active, healthy: v.Healthy, epoch: int64(v.Image.Epoch)}
	if c := v.Image.Controller; c != nil {
		r.held, r.holder = true, c.Record.GetId()
	}
	return r
}

func (r role) String() string {
	if !r.loaded {
		return "waiting for etcd"
	}
	s := "standby, nobody is active"
	switch {
	case r.active:
		s = fmt.Sprintf("active in epoch %d", r.epoch)
	case r.held:
		s = fmt.Sprintf("standby, %s is active in epoch %d", r.holder, r.epoch)
	}
	if !r.healthy {
		s += `; something is wrong, see "controllerd controller status"`
	}
	return s
}
