package fencing

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Term names a controller during one of its terms: the sender of commands.
type Term struct {
	ClusterUUID  string
	ControllerID string
	Epoch        cluster.Epoch
}

// Target names one incarnation of a broker: the receiver of commands.
type Target struct {
	Broker cluster.BrokerID
	Epoch  cluster.BrokerEpoch
}

// Stamp is what a command carries that the controller makes for a broker from
// the image at revision rev.
func (t Term) Stamp(to Target, rev store.Rev) *pb.Stamp {
	return &pb.Stamp{
		ClusterUuid:     t.ClusterUUID,
		ControllerId:    t.ControllerID,
		ControllerEpoch: int64(t.Epoch),
		BrokerId:        int32(to.Broker),
		BrokerEpoch:     int64(to.Epoch),
		Revision:        int64(rev),
	}
}
