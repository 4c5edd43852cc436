package broker

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
)

var (
	// ErrReplaced: a newer process of the same node registered under the
	// broker id. Returned by Wait and Run.
	ErrReplaced = errors.New("a newer process of this node took over the broker id")
	// ErrDuplicate: the broker id belongs to another node. Returned by Wait
	// and Run.
	ErrDuplicate = errors.New("the broker id belongs to another node")
	// ErrRejected: a daemon finds fault with the first registration; trying
	// again would not help. Returned by Wait and Run.
	ErrRejected = errors.New("registration rejected")
	// ErrKilled: Kill was called. Returned by Wait.
	ErrKilled = errors.New("broker was killed")
	// ErrClosed: the broker has stopped. Returned by AlterPartition and
	// ProposeISR, and the cause of the end of handlers' contexts.
	ErrClosed = errors.New("broker is closed")
	// ErrOvertaken: a newer proposal of the same partition took the place of
	// this one. Passed to the callback of ProposeISR.
	ErrOvertaken = errors.New("a newer proposal took the place of this one")
	// ErrStorage: a log directory failed. Returned by handlers.
	ErrStorage = errors.New("storage failed")
)

// ReasonOf is Kafka's name of the error that a daemon answered with, empty if
// it gave none.
func ReasonOf(err error) cluster.Reason { return cluster.Reason(infoOf(err).GetReason()) }

func infoOf(err error) *errdetails.ErrorInfo {
	s, ok := status.FromError(err)
	if !ok {
		return nil
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == cluster.ErrorDomain {
			return info
		}
	}
	return nil
}

// activeOf is where the active daemon is, if the error says so.
func activeOf(err error) string {
	if ReasonOf(err) != cluster.NotController {
		return ""
	}
	return infoOf(err).GetMetadata()["endpoint"]
}

// advice is what to do after a call of the session.
type advice uint8

const (
	goOn       advice = iota // it succeeded
	tryAgain                 // at the next daemon
	reregister               // the session is gone
	giveUp                   // the broker cannot go on
)

// phase is what the session is about to do.
type phase uint8

const (
	joining   phase = iota // register for the first time
	rejoining              // register again
	renewing
)

func (p phase) String() string {
	switch p {
	case joining:
		return "register"
	case rejoining:
		return "register again"
	}
	return "renew session"
}

// judge says what the outcome of a call of the session means. Its error is the
// one that the broker ends with, if it has to.
func judge(err error, p phase) (advice, error) {
	if err == nil {
		return goOn, nil
	}
	switch ReasonOf(err) {
	case cluster.StaleBrokerEpoch:
		if p == renewing {
			return reregister, nil
		}
	case cluster.Replaced:
		return giveUp, fmt.Errorf("%w: %w", ErrReplaced, err)
	case cluster.DuplicateBrokerRegistration:
		return giveUp, fmt.Errorf("%w: %w", ErrDuplicate, err)
	}
	if p == joining && status.Code(err) == codes.InvalidArgument {
		return giveUp, fmt.Errorf("%w: %w", ErrRejected, err)
	}
	return tryAgain, nil
}

// retriable reports whether another daemon, or the same one later, may answer
// a call that failed with err.
func retriable(err error) bool {
	switch status.Code(err) {
	// Canceled, while the caller's context lives: the connection was closed
	// because its daemon left the list.
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return true
	}
	return false
}
