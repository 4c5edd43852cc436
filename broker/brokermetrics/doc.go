// Package brokermetrics shows a broker to Prometheus. It is apart from package
// broker so that a broker which measures otherwise does without the library:
// what is shown is broker.Stats.
//
//	m := brokermetrics.New(b)
//	registry.MustRegister(m)
//	m.Messages(1, len(message)) // where the broker takes messages in, if it likes
package brokermetrics
