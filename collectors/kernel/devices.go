package kernel

import "net"

// Devices are names of network interfaces by index, remembered because a name
// costs a dump of all interfaces.
type Devices map[uint32]string

// Name is the name of an interface, and false if it has gone.
func (d Devices) Name(index uint32) (string, bool) {
	if name, ok := d[index]; ok {
		return name, true
	}
	i, err := net.InterfaceByIndex(int(index))
	if err != nil {
		return "", false
	}
	d[index] = i.Name
	return i.Name, true
}
