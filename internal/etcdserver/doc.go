// Package etcdserver runs one etcd member inside this process: the store of
// "controllerd dev" and of the tests, and of daemons without an etcd of their
// own.
//
// It owns the data directory and the listeners while the server runs. It
// promises that a directory is never opened twice, nor under another
// configuration of its member than the one with which it began, that the server
// answers when Start returns, and that Stop does not wait for open watches. A
// single member has no peer listener, so nothing can join it.
package etcdserver
