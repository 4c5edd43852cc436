package etcdstore

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/store"
)

// refusals are the answers of etcd that prove that a transaction was not
// applied.
var refusals = map[error]error{
	rpctypes.ErrTooManyRequests: store.ErrBusy,
	rpctypes.ErrLeaseNotFound:   store.ErrLeaseNotFound,
	rpctypes.ErrKeyNotFound:     store.ErrKeyNotFound,
	rpctypes.ErrTooManyOps:      store.ErrLimit,
	rpctypes.ErrDuplicateKey:    store.ErrLimit,
	rpctypes.ErrRequestTooLarge: store.ErrLimit,
}

// classify puts one of the store's errors in front of err, which may be an
// rpctypes.EtcdError, a gRPC status or a context's error, and keeps err in the
// chain. What is no refusal leaves the outcome open.
func classify(err error) error {
	if err == nil {
		return nil
	}
	answer := rpctypes.Error(err)
	if refusal, ok := refusals[answer]; ok {
		return fmt.Errorf("%w: %w", refusal, err)
	}
	if answer == rpctypes.ErrNoSpace {
		return fmt.Errorf("%w: %w: %w", store.ErrNoSpace, store.ErrUnknown, err)
	}
	if tooLargeToSend(err) {
		return fmt.Errorf("%w: %w", store.ErrLimit, err)
	}
	return fmt.Errorf("%w: %w", store.ErrUnknown, err)
}

// tooLargeToSend recognises that gRPC refused a request for its size: the
// client before it sent it, or the server before it read it. An answer that is
// too large for the client reads like the second, but no answer to a
// transaction comes near 4 MiB. The code alone is not enough: a server that is
// overloaded or a proxy may answer with it too.
func tooLargeToSend(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted &&
		(strings.Contains(s.Message(), "trying to send message larger than max") ||
			strings.Contains(s.Message(), "received message larger than max"))
}

// compacted reports whether etcd has forgotten the revision that was asked for.
func compacted(err error) bool {
	return errors.Is(rpctypes.Error(err), rpctypes.ErrCompacted)
}
