package rpc

import (
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// Request is a call that only the active controller decides.
type Request interface{ request() }

// Alter is an AlterPartition. The broker epoch was not checked yet.
type Alter struct{ *pb.AlterPartitionRequest }

// CreateTopics creates topics, each with its own result.
type CreateTopics struct{ *pb.CreateTopicsRequest }

// DeleteTopics deletes topics, each with its own result.
type DeleteTopics struct{ *pb.DeleteTopicsRequest }

// ElectLeaders elects other leaders, each partition with its own result.
type ElectLeaders struct{ *pb.ElectLeadersRequest }

// AlterSettings changes what holds for the whole cluster.
type AlterSettings struct{ *pb.AlterSettingsRequest }

// CreatePartitions makes more partitions of topics, each with its own result.
type CreatePartitions struct{ *pb.CreatePartitionsRequest }

// AlterPartitionReassignments gives partitions other replicas, each with its own
// result.
type AlterPartitionReassignments struct {
	*pb.AlterPartitionReassignmentsRequest
}

// ControlledShutdown drains a broker at its own request.
type ControlledShutdown struct{ *pb.ControlledShutdownRequest }

// DrainBroker drains a broker at an operator's request, or ends that.
type DrainBroker struct{ *pb.DrainBrokerRequest }

// AlterTopics changes the settings of topics, each with its own result.
type AlterTopics struct{ *pb.AlterTopicsRequest }

// Resign gives up the seat.
type Resign struct{ *pb.ResignControllerRequest }

// Transfer gives the seat to a named daemon.
type Transfer struct{ *pb.TransferControllerRequest }

func (Alter) request()                       {}
func (CreateTopics) request()                {}
func (DeleteTopics) request()                {}
func (ElectLeaders) request()                {}
func (AlterSettings) request()               {}
func (CreatePartitions) request()            {}
func (AlterPartitionReassignments) request() {}
func (ControlledShutdown) request()          {}
func (DrainBroker) request()                 {}
func (AlterTopics) request()                 {}
func (Resign) request()                      {}
func (Transfer) request()                    {}

// Answer is the answer to a Request: a response message, or an error.
type Answer struct {
	Response any
	Err      error
}

// Error is a gRPC status with Kafka's name of the error in its details.
// Metadata are pairs of name and value.
func Error(reason cluster.Reason, metadata map[string]string, format string, args ...any) error {
	return withInfo(status.New(reason.Code(), fmt.Sprintf(format, args...)), reason, metadata)
}

// ErrorWithCode is Error where the reason's own code would mislead.
func ErrorWithCode(code codes.Code, reason cluster.Reason, format string, args ...any) error {
	return withInfo(status.New(code, fmt.Sprintf(format, args...)), reason, nil)
}

func withInfo(s *status.Status, reason cluster.Reason, metadata map[string]string) error {
	clean := make(map[string]string, len(metadata))
	for name, value := range metadata { // a value that is not UTF-8 would cost the reason
		clean[name] = strings.ToValidUTF8(value, "?")
	}
	if d, err := s.WithDetails(&errdetails.ErrorInfo{
		Reason: string(reason), Domain: cluster.ErrorDomain, Metadata: clean,
	}); err == nil {
		s = d
	}
	return s.Err()
}

// NotController says that this daemon, whose process has that nonce, is not the
// active one, and who is.
func NotController(im *cluster.Image, nonce string) error {
	meta := map[string]string{}
	text := "no controller is active"
	if c := im.Controller; c != nil && c.Record.GetNonce() != nonce {
		meta["controller"], meta["endpoint"] = c.Record.GetId(), c.Record.GetEndpoint()
		text = fmt.Sprintf("the active controller is %s at %s", c.Record.GetId(), c.Record.GetEndpoint())
	}
	return Error(cluster.NotController, meta, "%s", text)
}

// ReasonOf is Kafka's name of an error that came over gRPC; empty if it has
// none.
func ReasonOf(err error) cluster.Reason {
	return cluster.Reason(infoOf(err).GetReason())
}

func infoOf(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}
