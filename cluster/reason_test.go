package cluster

import (
	"testing"

	"google.golang.org/grpc/codes"
)

func TestReasonCode(t *testing.T) {
	for reason, want := range map[Reason]codes.Code{
		"":                      codes.OK,
		"SOMETHING_NEWER":       codes.Unknown,
		StaleControllerEpoch:    codes.FailedPrecondition,
		NotController:           codes.Unavailable,
		InvalidUpdateVersion:    codes.Aborted,
		TopicAlreadyExists:      codes.AlreadyExists,
		UnknownTopicOrPartition: codes.NotFound,
	} {
		if got := reason.Code(); got != want {
			t.Errorf("code of %q is %v, want %v", reason, got, want)
		}
	}
}
