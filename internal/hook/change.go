package hook

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// Change is a change of controller. Its JSON is an interface to scripts: fields
// are only ever added.
type Change struct {
	ClusterUUID string `json:"cluster_uuid"`
	// The term that has begun.
	Epoch      int64  `json:"epoch"`
	Controller string `json:"controller"`
	Endpoint   string `json:"endpoint"`
	Began      string `json:"began"` // RFC 3339, by the clock of the new controller
	// The term before, 0 and empty if none is known.
	PreviousEpoch      int64  `json:"previous_epoch"`
	PreviousController string `json:"previous_controller"`
	// As the history of controllers names it; "lost" if nobody wrote one.
	PreviousCause  string `json:"previous_cause"`
	PreviousReason string `json:"previous_reason"`
}

// prefix begins the names of all variables that a command gets. What else
// begins with it in the environment of the caller may be a secret of its
// configuration, and is kept from the command.
const prefix = "CONTROLLERD_"

// environ is the environment of a command.
func (c Change) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, prefix) })
	for _, v := range [][2]string{
		{"CLUSTER_UUID", c.ClusterUUID},
		{"EPOCH", strconv.FormatInt(c.Epoch, 10)},
		{"ID", c.Controller},
		{"SERVER", c.Endpoint}, // so that controllerd itself, in a hook, asks the new controller
		{"BEGAN", c.Began},
		{"PREVIOUS_EPOCH", strconv.FormatInt(c.PreviousEpoch, 10)},
		{"PREVIOUS_ID", c.PreviousController},
		{"PREVIOUS_CAUSE", c.PreviousCause},
		{"PREVIOUS_REASON", c.PreviousReason},
	} {
		env = append(env, prefix+v[0]+"="+strings.ReplaceAll(v[1], "\x00", ""))
	}
	return env
}
