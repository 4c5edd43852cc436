// Package broker is what a broker written in Go links to take part in a
// cluster: it registers, keeps its session, serves the controller's commands
// through the gate, reports ISR changes and leaves in order.
//
// It owns the session, the control listener, the Gate and one worker for each
// partition that has work. It promises:
//
//   - A command is admitted and its handlers are put in line as one step, so
//     that what a handler sees last is what the gate admitted last.
//   - Handlers of one partition run one at a time. A handler's context ends
//     when a newer leader epoch of its partition is admitted; states between
//     that one and the newest are skipped.
//   - A hung handler delays neither pings, nor answers, nor other partitions.
//   - A command is answered with APPLIED or ALREADY only when the handler for
//     the leader epoch that it names, or for a higher one, has ended well. A
//     repeated command whose handler still runs is answered when that ends.
//   - The session ends only when a daemon says so. Silence is retried for
//     ever, at one daemon after the other, so a broker goes on with what it
//     was last told when daemons or etcd are away.
//   - ISR changes are proposed together, one request at a time, until they are
//     decided, and every replica that may be in the ISR by now is in the
//     maximal ISR.
//
// It does not promise that this broker still leads what it leads: between an
// election and the command that tells of it the broker serves with the older
// leader epoch. What it sends to others must carry the leader epoch, so that
// they can refuse it.
package broker
