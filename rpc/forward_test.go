package rpc

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// seat is a Core that sees who is active.
type seat struct {
	Core
	endpoint chan string // the next one
}

func (s *seat) Await(ctx context.Context, cond func(View) bool) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case endpoint := <-s.endpoint:
			im := cluster.NewImage(keys)
			if endpoint != "" {
				im.Controller = &cluster.Controller{Record: &pb.ControllerRecord{Endpoint: endpoint}}
			}
			if cond(View{Image: im}) {
				return nil
			}
		}
	}
}

// A call that was passed on to a daemon which does not answer any more ends soon
// after another one is active, but an answer that is on its way then arrives.
func TestForwardEndsWithTheSeat(t *testing.T) {
	for name, c := range map[string]struct {
		seats   []string
		answers time.Duration
		want    codes.Code
		took    time.Duration
	}{
		"frozen":              {seats: []string{"", "old:1", "new:1"}, answers: time.Hour, want: codes.Aborted, took: lastWord},
		"resigned":            {seats: []string{"", "new:1"}, answers: lastWord / 2, want: codes.OK, took: lastWord / 2},
		"slow, but in office": {seats: []string{"old:1", ""}, answers: 3 * lastWord, want: codes.OK, took: 3 * lastWord},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := &seat{endpoint: make(chan string, len(c.seats))}
				for _, s := range c.seats {
					core.endpoint <- s
				}
				f := newForwarder(core, nil)
				defer f.close()
				begun := time.Now()
				old := Error(cluster.NotController, map[string]string{"endpoint": "old:1"}, "")
				_, err := forward(t.Context(), f, old, func(ctx context.Context, _ *clients) (int, error) {
					select {
					case <-time.After(c.answers):
						return 1, nil
					case <-ctx.Done():
						return 0, status.FromContextError(ctx.Err()).Err()
					}
				})
				if status.Code(err) != c.want || time.Since(begun) != c.took {
					t.Errorf("%v after %v", err, time.Since(begun))
				}
				if c.want != codes.OK && ReasonOf(err) != cluster.NotController {
					t.Errorf("reason %q", ReasonOf(err))
				}
			})
		})
	}
}
