package unfenced

// Switch decides whether a safety part does its work. The zero value, the only
// one that other modules can write down, leaves it in.
type Switch struct{ open bool }

// Open is the switch that takes the part out. Only tests may call it.
func Open() Switch { return Switch{open: true} }

// IsOpen reports whether the part is taken out.
func (s Switch) IsOpen() bool { return s.open }
