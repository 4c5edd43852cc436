package rpc

import (
	"regexp"
	"strings"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// What gRPC puts around the reason of a failure.
var (
	quoted   = regexp.MustCompile(`connection error: desc = "((?:[^"\\]|\\.)*)"`)
	wrapping = regexp.MustCompile(`rpc error: code = \w+ desc = |transport: (Error while dialing: )?|dial tcp \S+: (connect: )?|error reading from server: `)
)

// Words is an error as people read it: without what gRPC says of itself, and
// on one line.
func Words(err error) string {
	text := wrapping.ReplaceAllString(quoted.ReplaceAllString(err.Error(), "$1"), "")
	return strings.ReplaceAll(text, "\n", "; ")
}

// refusals are the words for why a gate has refused a command.
var refusals = map[pb.Refusal]string{
	pb.Refusal_REFUSAL_STALE_CONTROLLER_EPOCH:  "it knows of a newer controller and refuses commands of this one",
	pb.Refusal_REFUSAL_STALE_BROKER_EPOCH:      "it has registered anew and refuses commands for its earlier registration",
	pb.Refusal_REFUSAL_UNAVAILABLE:             "it does not know yet that it is registered; commands are repeated",
	pb.Refusal_REFUSAL_INCONSISTENT_CLUSTER_ID: "a broker of another cluster answers at its address",
	pb.Refusal_REFUSAL_WRONG_BROKER:            "another broker answers at its address",
}

func refusalWords(r pb.Refusal) string {
	if words, ok := refusals[r]; ok {
		return words
	}
	return "it refuses commands for a reason that this version does not know"
}
