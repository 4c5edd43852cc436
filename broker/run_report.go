package broker

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/controllerd/controllerd/fencing"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// reportPart is how many partitions one part of a report names: some 100 bytes
// each, far below gRPC's limit, and a short time under the lock.
const reportPart = 2000

// ReportState says what the gate remembers, part by part. What changes meanwhile
// may be told as it was before or after.
func (c controlServer) ReportState(_ *pb.ReportStateRequest, out grpc.ServerStreamingServer[pb.ReportStateResponse]) error {
	b := c.b
	b.mu.Lock()
	first := &pb.ReportStateResponse{Identity: b.gate.Identity(), Revision: int64(b.gate.Heard())}
	remembered := b.gate.Remembered()
	b.mu.Unlock()
	if err := out.Send(first); err != nil {
		return err
	}
	for part := range slices.Chunk(remembered, reportPart) {
		states := make([]fencing.PartitionState, len(part))
		b.mu.Lock()
		for i, id := range part {
			states[i] = b.gate.Newest(id)
		}
		b.mu.Unlock()
		if err := out.Send(&pb.ReportStateResponse{Topics: fencing.WireStates(states)}); err != nil {
			return err
		}
	}
	return nil
}
