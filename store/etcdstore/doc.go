// Package etcdstore implements store.Store on an etcd cluster.
//
// It owns no state of its own beyond the client it was given. It promises what
// store.Store says: reads are linearizable, a transaction is sent at most once,
// a watch never skips a change and says so when it cannot go on. It does not
// retry, does not set deadlines and does not reconnect a watch: whoever calls
// decides what a failure means.
package etcdstore
