package main

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// poller asks how the cluster does, again and again.
type poller struct {
	*client
	active string // endpoint of the controller that answered last, "": none did
	nonce  string // of its process
	at     time.Time
	isr    int64 // changes of ISRs that it had counted
}

// poll asks once, the active controller if it can be found. What another
// daemon says is as good but for what only the active one counts.
func (p *poller) poll(ctx context.Context, c *changes) sample {
	var s sample
	asked := map[string]bool{}
	queue := p.servers
	if p.active != "" {
		queue = slices.Concat([]string{p.active}, queue)
	}
	var faults []error
	for len(queue) > 0 && ctx.Err() == nil {
		server := queue[0]
		queue = queue[1:]
		if asked[server] {
			continue
		}
		asked[server] = true
		resp, err := p.describe(ctx, server, 1+len(queue), c)
		if resp == nil {
			if server == p.active {
				p.active = ""
			}
			faults = append(faults, err)
			continue
		}
		if s.resp == nil || resp.GetRole() == "active" {
			s.resp, s.err = resp, err
		}
		if resp.GetRole() == "active" {
			break
		}
		queue = nil
		if resp.GetControllerId() != "" {
			queue = []string{resp.GetControllerEndpoint()}
		}
	}
	if s.resp == nil {
		s.err = errors.Join(faults...)
		if s.err == nil {
			s.err = errors.New("no answer in time")
		}
	}
	p.rate(&s)
	return s
}

// describe asks one daemon, which has its share of the time, and notes what its
// answer says of changes of controller.
func (p *poller) describe(ctx context.Context, server string, shares int, c *changes) (resp *pb.DescribeControllerResponse, err error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, time.Until(deadline)/time.Duration(shares))
	defer cancel()
	var noted error
	err = p.with(ctx, server, 1, func(admin pb.AdminServiceClient) (err error) {
		if resp, err = admin.DescribeController(ctx, &pb.DescribeControllerRequest{}); err == nil {
			noted = c.look(ctx, admin, resp)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, noted
}

// rate counts changes of ISRs since the answer before, if the same process gave
// both as the active one.
func (p *poller) rate(s *sample) {
	if s.resp.GetRole() != "active" {
		return // the process may go on counting when it answers again
	}
	now, isr := time.Now(), s.resp.GetCounters()["isr_shrinks"]+s.resp.GetCounters()["isr_expands"]
	if s.resp.GetNonce() == p.nonce && now.After(p.at) {
		rate := float64(isr-p.isr) / now.Sub(p.at).Seconds()
		s.changed = &rate
	}
	p.active, p.nonce, p.at, p.isr = s.resp.GetControllerEndpoint(), s.resp.GetNonce(), now, isr
}
