package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
)

// rewatch is the pause after all daemons were tried in vain.
const rewatch = 200 * time.Millisecond

// watcher follows the metadata from daemon to daemon.
type watcher struct {
	*client
	topics   []string // nil: all
	details  bool
	once     bool  // only until everything was told
	revision int64 // up to which everything was told

	cluster string
}

// errTold ends a watch that was to end when everything was told.
var errTold = errors.New("everything was told")

// unshown is why what a daemon said could not be shown.
type unshown struct{ error }

func (e unshown) Unwrap() error { return e.error }

// run calls take with all that it is told. It returns when it is interrupted,
// told everything if that is enough, when take fails, or when no daemon was
// found in time.
func (w *watcher) run(ctx context.Context, take func(*pb.WatchMetadataResponse) error) error {
	for deadline := time.Now().Add(w.timeout); ; {
		var faults []error
		for _, server := range w.servers {
			answered, err := w.follow(ctx, server, take)
			var shown unshown
			switch {
			case errors.Is(err, errTold):
				return nil
			case errors.As(err, &shown):
				return shown.error
			case ctx.Err() != nil && w.once:
				return errInterrupted
			case ctx.Err() != nil:
				return nil // how it is meant to end
			case !answered && !elsewhere(err, repeatable) && !w.behind(err):
				return err
			}
			if answered {
				deadline, faults = time.Now().Add(w.timeout), nil
			}
			faults = append(faults, err)
		}
		if time.Until(deadline) < rewatch {
			return errors.Join(faults...)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rewatch):
		}
	}
}

// behind reports whether the daemon has not seen what another one told us.
func (w *watcher) behind(err error) bool {
	var refused refusal
	return errors.As(err, &refused) && rpc.ReasonOf(refused.status.Err()) == cluster.RequestTimedOut
}

// follow takes what one daemon tells, until that ends, and reports whether it
// told anything.
func (w *watcher) follow(ctx context.Context, server string, take func(*pb.WatchMetadataResponse) error) (answered bool, err error) {
	limited, cancel := context.WithTimeout(ctx, w.timeout/time.Duration(len(w.servers)))
	defer cancel()
	conn, err := connect(limited, server)
	if err != nil {
		return false, unreachable{server, err}
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	inTime := context.AfterFunc(limited, cancel) // until the first answer
	stream, err := pb.NewMetadataServiceClient(conn).WatchMetadata(ctx, &pb.WatchMetadataRequest{
		ClusterUuid: w.cluster, Revision: w.revision, Topics: w.topics, Details: w.details,
	})
	for err == nil {
		var resp *pb.WatchMetadataResponse
		if resp, err = stream.Recv(); err != nil {
			break
		}
		if !answered && !inTime() {
			break
		}
		answered = true
		if err := take(resp); err != nil {
			return true, unshown{err}
		}
		if w.note(resp) {
			return true, errTold
		}
	}
	if !answered && errors.Is(limited.Err(), context.DeadlineExceeded) {
		err = status.Error(codes.Unavailable, "no answer in time")
	}
	return answered, refusal{server, status.Convert(err)}
}

// note keeps what a later watch has to name, and reports whether that was all.
func (w *watcher) note(resp *pb.WatchMetadataResponse) (done bool) {
	if resp.GetClusterUuid() != "" {
		w.cluster = resp.GetClusterUuid()
	}
	if resp.GetSnapshot() {
		w.revision = 0
	}
	if resp.GetRevision() == 0 {
		return false
	}
	w.revision = resp.GetRevision()
	return w.once
}
