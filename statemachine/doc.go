// Package statemachine holds the rules: what becomes of partitions and topics
// when brokers come, go and restart, and when leaders and operators ask.
//
// It owns the choice of leaders and ISRs (Next and the Elect functions), the
// checks of an AlterPartition (Alter), the making and placing of new topics
// (CreateTopic, AutoAssign), the table of legal edges (CheckEdge), and the
// agenda: the partitions for which Next would do something now (Machine).
//
// Everything is a function of a cluster.Image. Nothing is changed here: the
// result is Writes, and the agenda shrinks only when the image shows them. It
// promises that a rule has nothing more to do for a partition once its Write
// is in the image, and that equal images give equal Writes. It does not
// promise that a Write may be stored: the caller guards it by the claim and by
// the mod revision of the block that it was decided from.
package statemachine
