package rpc

import (
	"maps"
	"slices"

	"github.com/controllerd/controllerd/cluster"
	pb "github.com/controllerd/controllerd/proto/controllerd/v1"
)

// describeSettings names all settings that the controller knows, and all that
// are set.
func describeSettings(im *cluster.Image) *pb.DescribeSettingsResponse {
	s := im.Settings
	resp := &pb.DescribeSettingsResponse{
		Freeze: s.Record.GetFreeze(), Reason: s.Record.GetReason(), ChangedMs: s.Record.GetChangedMs(), Revision: int64(im.Rev),
		Problem: im.Faults[im.Keys.Settings()].Reason,
	}
	names := slices.Collect(maps.Keys(s.Record.GetConfig()))
	for _, known := range cluster.KnownSettings {
		names = append(names, known.Name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		known, _ := cluster.KnownSetting(name)
		_, set := s.Record.GetConfig()[name]
		resp.Settings = append(resp.Settings, &pb.SettingValue{
			Name: name, Value: s.Value(name), Set: set, Default: known.Default, Doc: known.Doc,
			Topic: known.Topic, TopicOnly: known.Topic && !known.Cluster,
		})
	}
	return resp
}
