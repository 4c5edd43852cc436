package rpc

import (
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/store"
)

// Registration is what to do next about a Register: refuse it, answer it, or
// commit a transaction and look again.
type Registration struct {
	Err    error
	Done   *cluster.Broker // registered as this
	Txn    store.Txn
	Revoke store.LeaseID // of the incarnation that the transaction ends
	Grant  bool          // the transaction needs a lease
}

// DecideRegister looks at the image alone, so that it can be asked again after
// each transaction, whatever its outcome.
//
// A broker id belongs to the node that registered it first. The first
// registration of a new process of that node takes over from an older one: its
// key is deleted, and a new one created, which is a new broker epoch. A
// process that comes back to find a newer one in its place is told so. One that
// has new addresses keeps its key, and so its broker epoch.
func DecideRegister(v View, r *pb.RegisterRequest, lease store.LeaseID, nowMs int64) Registration {
	im, id := v.Image, cluster.BrokerID(r.GetBrokerId())
	if err := checkCluster(v, r.GetClusterUuid()); err != nil {
		return Registration{Err: err}
	}
	node, have := im.Nodes[id], im.Brokers[id]
	switch {
	case node != nil && node.Record.GetNodeUuid() != r.GetNodeUuid():
		return Registration{Err: Error(cluster.DuplicateBrokerRegistration, nil,
			"broker id %d belongs to node %s, not to %s", id, node.Record.GetNodeUuid(), r.GetNodeUuid())}
	case node != nil && node.Record.GetDecommissioned():
		return Registration{Err: Error(cluster.DuplicateBrokerRegistration, nil, "broker id %d was decommissioned", id)}
	case node != nil && !r.GetFirst() && node.Record.GetNonce() != "" && node.Record.GetNonce() != r.GetNonce():
		return Registration{Err: Error(cluster.Replaced, nil, "a newer process of node %s has registered as broker %d", r.GetNodeUuid(), id)}
	case have != nil && have.Record.GetNonce() == r.GetNonce() && r.GetAddressVersion() > have.Record.GetAddressVersion():
		return Registration{Txn: newAddresses(im, have, r)}
	case have != nil && have.Record.GetNonce() == r.GetNonce():
		return Registration{Done: have}
	case node == nil && im.ModRev(im.Keys.Node(id)) != 0:
		return Registration{Err: ErrorWithCode(codes.Unavailable, cluster.KafkaStorageError,
			"key %s cannot be read, so nobody knows whose broker %d is: repair or delete it", im.Keys.Node(id), id)}
	case have != nil && node != nil && node.Record.GetNonce() == r.GetNonce():
		return Registration{Err: Error(cluster.Replaced, nil, "another process of node %s is registered as broker %d", r.GetNodeUuid(), id)}
	case have != nil || im.ModRev(im.Keys.Broker(id)) != 0: // also if it can not be read
		key := im.Keys.Broker(id)
		out := Registration{Txn: store.Txn{
			If:   []store.Cond{store.CreateRevIs(key, im.CreateRev(key)), store.ModRevIs(im.Keys.Node(id), im.ModRev(im.Keys.Node(id)))},
			Then: []store.Op{store.Delete(key)},
		}}
		if have != nil {
			out.Revoke = have.Lease
		}
		return out
	}
	return Registration{Grant: true, Txn: createBroker(im, id, r, lease, node, nowMs)}
}

// createBroker makes the broker's key, and binds the id to the node and the
// process.
func createBroker(im *cluster.Image, id cluster.BrokerID, r *pb.RegisterRequest, lease store.LeaseID, node *cluster.Node, nowMs int64) store.Txn {
	record := &pb.BrokerRecord{
		NodeUuid: r.GetNodeUuid(), Nonce: r.GetNonce(), Lease: int64(lease), ControlAddress: r.GetControlAddress(),
		Endpoints: r.GetEndpoints(), Rack: r.GetRack(), State: pb.BrokerState_BROKER_STATE_RUNNING,
		DeathProbe: r.GetDeathProbe(), MetadataScope: r.GetMetadataScope(), RegisteredMs: nowMs,
		AddressVersion: r.GetAddressVersion(),
	}
	if record.MetadataScope == pb.MetadataScope_METADATA_SCOPE_UNSPECIFIED {
		record.MetadataScope = pb.MetadataScope_METADATA_SCOPE_ALL
	}
	owner := &pb.NodeRecord{}
	if node != nil {
		owner = proto.Clone(node.Record).(*pb.NodeRecord)
	}
	owner.NodeUuid, owner.Nonce, owner.ControlAddress = r.GetNodeUuid(), r.GetNonce(), r.GetControlAddress()
	k := im.Keys
	return store.Txn{
		If: []store.Cond{store.Missing(k.Broker(id)), store.ModRevIs(k.Node(id), im.ModRev(k.Node(id))), clusterStands(im)},
		Then: []store.Op{
			store.PutLeased(k.Broker(id), cluster.Encode(record), lease),
			store.Put(k.Node(id), cluster.Encode(owner)),
		},
	}
}

// newAddresses writes the new addresses of a process into its key, beside what the
// active has written there.
func newAddresses(im *cluster.Image, have *cluster.Broker, r *pb.RegisterRequest) store.Txn {
	record := proto.Clone(have.Record).(*pb.BrokerRecord)
	record.ControlAddress, record.Endpoints, record.DeathProbe = r.GetControlAddress(), r.GetEndpoints(), r.GetDeathProbe()
	record.AddressVersion = r.GetAddressVersion()
	key := im.Keys.Broker(have.ID)
	txn := store.Txn{
		If:   []store.Cond{store.ModRevIs(key, have.ModRev), clusterStands(im)},
		Then: []store.Op{store.PutKeepLease(key, cluster.Encode(record))},
	}
	if node := im.Nodes[have.ID]; node != nil {
		owner := proto.Clone(node.Record).(*pb.NodeRecord)
		owner.ControlAddress = r.GetControlAddress()
		key := im.Keys.Node(have.ID)
		txn.If = append(txn.If, store.ModRevIs(key, node.ModRev))
		txn.Then = append(txn.Then, store.Put(key, cluster.Encode(owner)))
	}
	return txn
}

// clusterStands is the condition that the cluster key is the one of the image.
func clusterStands(im *cluster.Image) store.Cond {
	return store.ModRevIs(im.Keys.Cluster(), im.ModRev(im.Keys.Cluster()))
}

// checkCluster compares a caller's cluster, if it names one, with the one that
// the daemon serves. A daemon whose cluster key is gone or was changed serves
// none.
func checkCluster(v View, uuid string) error {
	switch {
	case v.ClusterUUID == "":
		return Error(cluster.NotController, nil, "this daemon does not know its cluster yet")
	case v.Image.Cluster.GetUuid() != v.ClusterUUID:
		return Error(cluster.NotController, nil, "the key of cluster %s is gone or was changed", v.ClusterUUID)
	case uuid != "" && uuid != v.ClusterUUID:
		return Error(cluster.InconsistentClusterID, map[string]string{"cluster": v.ClusterUUID},
			"this is cluster %s, not %s", v.ClusterUUID, uuid)
	}
	return nil
}

// CheckSession compares a renewal with the image, which has reached the
// broker epoch that it names.
func CheckSession(im *cluster.Image, id cluster.BrokerID, epoch cluster.BrokerEpoch, nonce string) error {
	b, node := im.Brokers[id], im.Nodes[id]
	switch {
	case b != nil && b.Epoch == epoch && b.Record.GetNonce() == nonce:
		return nil
	case node != nil && node.Record.GetNonce() != "" && node.Record.GetNonce() != nonce:
		return Error(cluster.Replaced, nil, "a newer process of node %s has registered as broker %d", node.Record.GetNodeUuid(), id)
	}
	return Error(cluster.StaleBrokerEpoch, nil, "broker %d has no session of epoch %d", id, epoch)
}

// CheckRenewal is CheckSession, and compares the lease: a renewal must not keep
// alive what is not the broker's.
func CheckRenewal(im *cluster.Image, r *pb.RenewSessionRequest) error {
	id := cluster.BrokerID(r.GetBrokerId())
	if err := CheckSession(im, id, cluster.BrokerEpoch(r.GetBrokerEpoch()), r.GetNonce()); err != nil {
		return err
	}
	if im.Brokers[id].Lease != store.LeaseID(r.GetLease()) {
		return Error(cluster.StaleBrokerEpoch, nil, "broker %d does not live on lease %x", id, r.GetLease())
	}
	return nil
}

// dialable reports whether an address is host:port with a port that can be
// dialed.
func dialable(address string) bool {
	i := strings.LastIndexByte(address, ':')
	if i <= 0 || strings.ContainsAny(address, " \t\n/") {
		return false
	}
	port, err := strconv.ParseUint(address[i+1:], 10, 16)
	return err == nil && port > 0
}
