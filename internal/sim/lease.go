package sim

import "errors"

// ErrLateAct (I11): a daemon that looks at its deadline, and acts right after
// that, acts under a lease that has not expired. One that is frozen between the
// two may do so later: its commands and writes are fenced.
var ErrLateAct = errors.New("I11: acted under an expired lease")

// checkLease holds what the daemon believes of its lease against etcd.
func (d *simDaemon) checkLease() {
	if lease := d.loop.Candidate().Lease(); d.w.etcd.expired[lease] {
		d.w.blame(ErrLateAct, "%s under lease %d", d.name, lease)
	}
}
