// Package scenarios plays faults on real parts: daemons and brokers over gRPC
// on a real etcd, and daemons as processes that are stopped and killed. It
// holds nothing but tests.
//
// A test with a letter code in its name (TestEL1...) plays the field report of
// that code. After every test, whatever it is about, the history of etcd and
// of what brokers accepted is judged against the same rules; see tape and
// judge. Those that need minutes have the build tag faults.
package scenarios
