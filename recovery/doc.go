// Package recovery brings a cluster back to life whose etcd was restored from a
// snapshot that is older than what brokers have obeyed.
//
// Brokers then remember a controller epoch above the one that etcd holds, and
// refuse every new term; leader and partition epochs above those of the
// records, so that nothing they are told is news to them; and revisions that
// etcd reaches a second time with other content, unless the restore has bumped
// its revision.
//
// The package asks the brokers what they remember and raises all epochs above
// it. The highest state that any broker remembers of a partition was committed
// once, in the history that was lost: if it is newer than the record, its ISR
// and its leader take the place of what the snapshot holds, so that nobody is
// elected who had fallen out of the ISR.
//
// Everything is written while the key `recovery` stands, which keeps every
// daemon from the seat, the controller epoch last: whatever breaks off is gone on
// with by running it again.
//
// It does not promise that nothing is lost. What the snapshot lacks and no
// broker remembers is gone: topics that were created since, assignments that
// were changed, and deletions, which are undone.
package recovery
