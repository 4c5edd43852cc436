package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// askActive bounds how long a standby waits for what only the active knows.
const askActive = time.Second

// errStandby: who was said to be active is not, and knows no more.
var errStandby = errors.New("rpc: a standby answered")

// adminService is what operators call.
type adminService struct {
	pb.UnimplementedAdminServiceServer
	core Core
	fwd  *forwarder
}

// look answers from the image, once etcd has been read: an image of nothing
// would say that nothing exists.
func look[T any](ctx context.Context, core Core, fn func(View) (T, error)) (T, error) {
	return lookAtAny(ctx, core, func(v View) (T, error) {
		if v.Image.Rev == 0 {
			return *new(T), Error(cluster.NotController, nil, "this daemon has read nothing from etcd yet")
		}
		return fn(v)
	})
}

// lookAtActive lets the active answer, which knows more. If it does not, the
// image has to do.
func lookAtActive[T any](ctx context.Context, s *adminService, fn func(View) (T, error), ask func(context.Context, *clients) (T, error)) (T, error) {
	var active bool
	var who error
	resp, err := look(ctx, s.core, func(v View) (T, error) {
		active, who = v.Active, NotController(v.Image, v.Nonce)
		return fn(v)
	})
	if err != nil || active {
		return resp, err
	}
	ctx, cancel := context.WithTimeout(ctx, askActive)
	defer cancel()
	if better, err := forward(ctx, s.fwd, who, ask); err == nil {
		return better, nil
	}
	return resp, nil
}

// lookAtAny answers from the image, even from that of nothing.
func lookAtAny[T any](ctx context.Context, core Core, fn func(View) (T, error)) (T, error) {
	var resp, none T
	var refused error
	if err := core.Await(ctx, func(v View) bool { resp, refused = fn(v); return true }); err != nil {
		return none, unavailable(err) // fn may be running all the same
	}
	return resp, refused
}

// decided lets the active decide, which is here or elsewhere.
func decided[T any](ctx context.Context, core Core, fwd *forwarder, r Request, elsewhere func(context.Context, *clients) (T, error)) (T, error) {
	resp, err := core.Submit(ctx, r)
	if ReasonOf(err) == cluster.NotController {
		return forward(ctx, fwd, err, elsewhere)
	}
	return typed[T](resp, err)
}

func (s *adminService) CreateTopics(ctx context.Context, r *pb.CreateTopicsRequest) (*pb.CreateTopicsResponse, error) {
	if len(r.GetTopics()) == 0 {
		return nil, bad("the request names no topic")
	}
	if err := checkTexts(text{"request id", r.GetRequestId()}, text{"reason", r.GetReason()}); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, CreateTopics{r}, func(ctx context.Context, c *clients) (*pb.CreateTopicsResponse, error) {
		return c.admin.CreateTopics(ctx, r)
	})
}

func (s *adminService) DeleteTopics(ctx context.Context, r *pb.DeleteTopicsRequest) (*pb.DeleteTopicsResponse, error) {
	if len(r.GetTopics()) == 0 {
		return nil, bad("the request names no topic")
	}
	if err := checkTexts(text{"reason", r.GetReason()}); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, DeleteTopics{r}, func(ctx context.Context, c *clients) (*pb.DeleteTopicsResponse, error) {
		return c.admin.DeleteTopics(ctx, r)
	})
}

func (s *adminService) ElectLeaders(ctx context.Context, r *pb.ElectLeadersRequest) (*pb.ElectLeadersResponse, error) {
	if err := checkElectLeaders(r); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, ElectLeaders{r}, func(ctx context.Context, c *clients) (*pb.ElectLeadersResponse, error) {
		return c.admin.ElectLeaders(ctx, r)
	})
}

func (s *adminService) AlterSettings(ctx context.Context, r *pb.AlterSettingsRequest) (*pb.AlterSettingsResponse, error) {
	if err := checkAlterSettings(r); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, AlterSettings{r}, func(ctx context.Context, c *clients) (*pb.AlterSettingsResponse, error) {
		return c.admin.AlterSettings(ctx, r)
	})
}

func (s *adminService) CreatePartitions(ctx context.Context, r *pb.CreatePartitionsRequest) (*pb.CreatePartitionsResponse, error) {
	if err := checkCreatePartitions(r); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, CreatePartitions{r}, func(ctx context.Context, c *clients) (*pb.CreatePartitionsResponse, error) {
		return c.admin.CreatePartitions(ctx, r)
	})
}

func (s *adminService) AlterPartitionReassignments(ctx context.Context, r *pb.AlterPartitionReassignmentsRequest) (*pb.AlterPartitionReassignmentsResponse, error) {
	if err := checkReassignments(r); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, AlterPartitionReassignments{r}, func(ctx context.Context, c *clients) (*pb.AlterPartitionReassignmentsResponse, error) {
		return c.admin.AlterPartitionReassignments(ctx, r)
	})
}

func (s *adminService) ListPartitionReassignments(ctx context.Context, r *pb.ListPartitionReassignmentsRequest) (*pb.ListPartitionReassignmentsResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.ListPartitionReassignmentsResponse, error) { return listReassignments(v, r) })
}

func (s *adminService) DrainBroker(ctx context.Context, r *pb.DrainBrokerRequest) (*pb.DrainBrokerResponse, error) {
	if err := checkCaller(r.GetBrokerId()); err != nil {
		return nil, err
	}
	if err := checkTexts(text{"reason", r.GetReason()}); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, DrainBroker{r}, func(ctx context.Context, c *clients) (*pb.DrainBrokerResponse, error) {
		return c.admin.DrainBroker(ctx, r)
	})
}

func (s *adminService) AlterTopics(ctx context.Context, r *pb.AlterTopicsRequest) (*pb.AlterTopicsResponse, error) {
	if err := checkAlterTopics(r); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, AlterTopics{r}, func(ctx context.Context, c *clients) (*pb.AlterTopicsResponse, error) {
		return c.admin.AlterTopics(ctx, r)
	})
}

func (s *adminService) DescribeSettings(ctx context.Context, _ *pb.DescribeSettingsRequest) (*pb.DescribeSettingsResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.DescribeSettingsResponse, error) { return describeSettings(v.Image), nil })
}

func (s *adminService) ResignController(ctx context.Context, r *pb.ResignControllerRequest) (*pb.ResignControllerResponse, error) {
	if err := checkTexts(text{"reason", r.GetReason()}); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, Resign{r}, func(ctx context.Context, c *clients) (*pb.ResignControllerResponse, error) {
		return c.admin.ResignController(ctx, r)
	})
}

func (s *adminService) TransferController(ctx context.Context, r *pb.TransferControllerRequest) (*pb.TransferControllerResponse, error) {
	if err := checkTexts(text{"successor", r.GetSuccessor()}, text{"reason", r.GetReason()}); err != nil {
		return nil, err
	}
	return decided(ctx, s.core, s.fwd, Transfer{r}, func(ctx context.Context, c *clients) (*pb.TransferControllerResponse, error) {
		return c.admin.TransferController(ctx, r)
	})
}

func (s *adminService) ListTopics(ctx context.Context, r *pb.ListTopicsRequest) (*pb.ListTopicsResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.ListTopicsResponse, error) { return listTopics(v.Image, r) })
}

func (s *adminService) DescribeTopic(ctx context.Context, r *pb.DescribeTopicRequest) (*pb.DescribeTopicResponse, error) {
	return lookAtActive(ctx, s, func(v View) (*pb.DescribeTopicResponse, error) { return describeTopic(v, r) },
		func(ctx context.Context, c *clients) (*pb.DescribeTopicResponse, error) {
			return c.admin.DescribeTopic(ctx, r)
		})
}

func (s *adminService) ListTombstones(ctx context.Context, r *pb.ListTombstonesRequest) (*pb.ListTombstonesResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.ListTombstonesResponse, error) { return listTombstones(v.Image, r) })
}

// ListBrokers is passed on to the active, which knows more of its streams to
// brokers. If that does not answer soon, it is answered from the image.
func (s *adminService) ListBrokers(ctx context.Context, r *pb.ListBrokersRequest) (*pb.ListBrokersResponse, error) {
	return lookAtActive(ctx, s, func(v View) (*pb.ListBrokersResponse, error) { return listBrokers(v), nil },
		func(ctx context.Context, c *clients) (*pb.ListBrokersResponse, error) {
			resp, err := c.admin.ListBrokers(ctx, r)
			if err == nil && !resp.GetFromActive() {
				err = errStandby
			}
			return resp, err
		})
}

func (s *adminService) DescribeController(ctx context.Context, _ *pb.DescribeControllerRequest) (*pb.DescribeControllerResponse, error) {
	resp, err := lookAtAny(ctx, s.core, func(v View) (*pb.DescribeControllerResponse, error) { return describeController(v), nil })
	if err == nil {
		addHeap(resp.Counters)
		resp.WallMs = time.Now().UnixMilli()
	}
	return resp, err
}

func (s *adminService) ListControllers(ctx context.Context, _ *pb.ListControllersRequest) (*pb.ListControllersResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.ListControllersResponse, error) { return listControllers(v.Image), nil })
}

func (s *adminService) ListTerms(ctx context.Context, r *pb.ListTermsRequest) (*pb.ListTermsResponse, error) {
	return look(ctx, s.core, func(v View) (*pb.ListTermsResponse, error) { return listTerms(v.Image, r) })
}
