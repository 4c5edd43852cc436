package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/store"
)

// Watch reads one watch stream of its own. It does not use the client's
// Watcher, which buffers without bound when fn is slow and reconnects unseen:
// here gRPC's flow control holds the server back, which keeps what is not sent
// in its store, and a broken connection ends the watch. The caller goes on from
// the last revision that it was given.
func (s *Store) Watch(ctx context.Context, w store.Watch, fn func(store.Batch)) error {
	watching, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	silence := newSilence(w.Silence, func() { cancel(store.ErrSilent) })
	var asking sync.WaitGroup
	defer asking.Wait() // after the cancellation
	defer cancel(nil)
	defer silence.stop()

	err := s.watch(watching, w, silence, &asking, fn)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(context.Cause(watching), store.ErrSilent):
		err = store.ErrSilent
	}
	return fmt.Errorf("watch %q: %w", w.Prefix, err)
}

func (s *Store) watch(ctx context.Context, w store.Watch, silence silence, asking *sync.WaitGroup, fn func(store.Batch)) error {
	stream, err := s.openWatch(ctx, w)
	if err != nil {
		return err
	}
	if w.Progress > 0 {
		asking.Go(func() { askProgress(ctx, stream, w.Progress) })
	}
	at := w.After
	for {
		silence.reset()
		resp, err := stream.Recv()
		if err != nil {
			return rpctypes.Error(err)
		}
		silence.stop() // the time that fn takes is not the server's
		batch, err := batchOf(resp, w.After, at)
		if err != nil {
			return err
		}
		if batch.Rev > 0 {
			at = batch.Rev
			fn(batch)
		}
	}
}

// openWatch starts a watch and waits until the server confirms it.
//
// It starts at After, not one later, and drops what it knows: etcd answers no
// progress request of a watch that starts in the future, so on a quiet cluster
// a healthy stream would look dead.
func (s *Store) openWatch(ctx context.Context, w store.Watch) (pb.Watch_WatchClient, error) {
	stream, err := pb.NewWatchClient(s.client.ActiveConnection()).Watch(ctx,
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	from, end := rangeOf(w.Prefix)
	create := &pb.WatchCreateRequest{Key: []byte(from), RangeEnd: []byte(end), StartRevision: int64(max(w.After, 1))}
	err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}})
	if err != nil {
		_, err = stream.Recv() // which knows why
		return nil, rpctypes.Error(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	if resp.Canceled {
		return nil, canceled(resp)
	}
	return stream, nil
}

// askProgress asks the server how far the watch is, until ctx ends. A request
// that cannot be sent shows in what is received.
func askProgress(ctx context.Context, stream pb.Watch_WatchClient, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	ask := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := stream.Send(ask); err != nil {
				return
			}
		}
	}
}

// batchOf converts a response to a watch that began after one revision and has
// seen everything up to at. A batch without a revision brings nothing new.
//
// The header of a response with events may be ahead of them, because etcd sends
// at most 1,000 revisions of a backlog at once; so the last event says how far
// the batch reaches. Without events it is a progress notification: etcd sends
// it through the same queue as the events, and only when the watch is in step.
// (Before 3.4.25 and 3.5.8 it could overtake them, which ends the watch here.)
func batchOf(resp *pb.WatchResponse, after, at store.Rev) (store.Batch, error) {
	if resp.Canceled || resp.CompactRevision > 0 {
		return store.Batch{}, canceled(resp)
	}
	var batch store.Batch
	for _, ev := range resp.Events {
		rev := store.Rev(ev.Kv.ModRevision)
		if rev <= after {
			continue
		}
		if rev <= at || rev < batch.Rev {
			return store.Batch{}, fmt.Errorf("revision %d came after %d", rev, max(at, batch.Rev))
		}
		batch.Rev = rev
		batch.Changes = append(batch.Changes, changeOf(ev))
	}
	if rev := store.Rev(resp.Header.GetRevision()); len(resp.Events) == 0 && rev >= at {
		batch.Rev = rev
	}
	return batch, nil
}

func changeOf(ev *mvccpb.Event) store.Change {
	if ev.Type == mvccpb.Event_DELETE {
		return store.Change{Deleted: true, KV: store.KV{Key: string(ev.Kv.Key), ModRev: store.Rev(ev.Kv.ModRevision)}}
	}
	return store.Change{KV: kvOf(ev.Kv)}
}

// canceled says why the server ended a watch.
func canceled(resp *pb.WatchResponse) error {
	switch {
	case resp.CompactRevision > 0:
		return fmt.Errorf("%w at %d", store.ErrCompacted, resp.CompactRevision)
	case resp.CancelReason != "":
		return rpctypes.Error(errors.New(resp.CancelReason))
	}
	return errors.New("canceled by the server")
}

// silence is a timer that may be off.
type silence struct {
	after time.Duration
	timer *time.Timer
}

func newSilence(after time.Duration, fn func()) silence {
	if after <= 0 {
		return silence{}
	}
	return silence{after: after, timer: time.AfterFunc(after, fn)}
}

func (s silence) reset() {
	if s.timer != nil {
		s.timer.Reset(s.after)
	}
}

func (s silence) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}
