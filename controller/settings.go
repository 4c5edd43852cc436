package controller

import (
	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
	"github.com/controllerd/controllerd/rpc"
	"github.com/controllerd/controllerd/statemachine"
	"github.com/controllerd/controllerd/store"
)

// alterSettings decides a change of the settings, one in a plan.
func (d *draft) alterSettings(owner int64, r rpc.AlterSettings) bool {
	if d.settings {
		return false
	}
	im := d.l.im
	record, rej := statemachine.AlterSettings(im, d.term, r.AlterSettingsRequest)
	if rej != nil {
		d.answers[owner] = rpc.Answer{Err: rpc.Error(rej.Reason, nil, "%s", rej.Message)}
		return true
	}
	changed := record != im.Settings.Record
	if changed && !r.GetValidateOnly() {
		d.settings = true
		d.add(&unit{
			conds:  []store.Cond{store.ModRevIs(im.Keys.Settings(), im.Settings.ModRev)},
			ops:    []store.Op{store.Put(im.Keys.Settings(), cluster.Encode(record))},
			owners: []int64{owner},
		})
	}
	d.answers[owner] = rpc.Answer{Response: &pb.AlterSettingsResponse{Changed: changed}}
	return true
}

// alterTopics decides a change of the settings of topics, each with its own
// result. It waits for another write of one of their records.
func (d *draft) alterTopics(owner int64, r rpc.AlterTopics) bool {
	im := d.l.im
	for _, name := range r.GetTopics() {
		if t := im.Topics[name]; t != nil && d.recorded(t.ID) {
			return false
		}
	}
	resp := &pb.AlterTopicsResponse{}
	for _, name := range r.GetTopics() {
		t := im.Topics[name]
		result := &pb.AlterTopicResult{Topic: name}
		resp.Results = append(resp.Results, result)
		record, rej := statemachine.AlterTopic(t, r.AlterTopicsRequest)
		if rej != nil {
			result.Error, result.Message = string(rej.Reason), rej.Message
			continue
		}
		result.Config = record.GetConfig()
		if record != t.Record && !r.GetValidateOnly() {
			d.altered[t.ID] = true
			d.add(&unit{
				conds:  []store.Cond{store.ModRevIs(im.Keys.Topic(name), t.ModRev)},
				ops:    []store.Op{store.Put(im.Keys.Topic(name), cluster.Encode(record))},
				owners: []int64{owner},
			})
		}
	}
	d.answers[owner] = rpc.Answer{Response: resp}
	return true
}

// recorded reports whether this plan writes the record of a topic already: it
// is written again when that has settled.
func (d *draft) recorded(id cluster.TopicID) bool { return d.deleted[id] != nil || d.altered[id] }

// add adds what is no partition's.
func (d *draft) add(u *unit) {
	d.chores = append(d.chores, u)
	d.writes += eventCost
}
