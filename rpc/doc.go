// Package rpc is how daemons speak with brokers and operators.
//
// It owns the push of commands to brokers (the change list, a cursor per
// broker, the streams) and the gRPC services that brokers and operators call.
// It promises that a command is made only from an image in which the claim of
// its stamp holds, that a broker hears the newest state only, and that a slow
// or stuck broker or partition holds up no other. It does not decide who
// leads, and does not promise that a command was obeyed: the results say that.
package rpc
