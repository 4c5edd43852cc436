// Package etcdserver runs one etcd member inside this process: the store of
// "controllerd dev" and of the tests.
//
// It owns the data directory and the client listener while the server runs.
// It promises that a directory is never opened twice, that the server answers
// when Start returns, and that Stop does not wait for open watches. It does
// not promise more than one member: there is no peer listener, so nothing can
// join.
package etcdserver
