package etcdstore

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/store"
)

func TestClassify(t *testing.T) {
	cases := []struct {
		err     error
		want    error
		refused bool
	}{
		{rpctypes.ErrTooManyRequests, store.ErrBusy, true},
		{rpctypes.ErrGRPCRequestTooManyRequests, store.ErrBusy, true},
		{status.Error(codes.Unknown, "etcdserver: too many requests"), store.ErrBusy, true}, // as a 3.7 server sends it
		{rpctypes.ErrLeaseNotFound, store.ErrLeaseNotFound, true},
		{rpctypes.ErrGRPCLeaseNotFound, store.ErrLeaseNotFound, true},
		{rpctypes.ErrKeyNotFound, store.ErrKeyNotFound, true},
		{rpctypes.ErrGRPCKeyNotFound, store.ErrKeyNotFound, true},
		{rpctypes.ErrTooManyOps, store.ErrLimit, true},
		{rpctypes.ErrGRPCDuplicateKey, store.ErrLimit, true},
		{rpctypes.ErrGRPCRequestTooLarge, store.ErrLimit, true},
		{status.Error(codes.ResourceExhausted, "trying to send message larger than max (2200000 vs. 2097152)"), store.ErrLimit, true},
		{status.Error(codes.ResourceExhausted, "grpc: received message larger than max (2200000 vs. 2097152)"), store.ErrLimit, true},

		{rpctypes.ErrNoSpace, store.ErrNoSpace, false},
		{rpctypes.ErrGRPCNoSpace, store.ErrUnknown, false},
		{status.Error(codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM"), store.ErrUnknown, false},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), store.ErrUnknown, false},
		{rpctypes.ErrGRPCTimeout, store.ErrUnknown, false},
		{rpctypes.ErrLeaderChanged, store.ErrUnknown, false},
		{context.DeadlineExceeded, store.ErrUnknown, false},
		{errors.New("anything"), store.ErrUnknown, false},
	}
	for _, c := range cases {
		got := classify(c.err)
		if !errors.Is(got, c.want) || !errors.Is(got, c.err) || store.Refused(got) != c.refused || errors.Is(got, store.ErrUnknown) == c.refused {
			t.Errorf("classify(%v) = %v", c.err, got)
		}
	}
	if err := classify(nil); err != nil {
		t.Error(err)
	}
}
