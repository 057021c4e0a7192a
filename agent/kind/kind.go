// Package kind has what the agent does for each kind of flow, and of action: a
// file each, which adds to the tables here. A new kind is a new file.
package kind

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"dumbbell/agent/phase"
	"dumbbell/agent/plan"
	"dumbbell/collectors/tcpinfo"
	"dumbbell/traffic/guard"
)

// A Kind is a kind of flow.
type Kind struct {
	Name        string // in a plan
	Program     string // what makes it: the first word of the kinds of its actions
	Protocol    tcpinfo.Protocol
	ServerSends bool // it is the server, which waits to be asked, that sends the data
	KernelPorts bool // the kernel chooses the ports of its client
	Sampling    Sampling
	Options     bool          // it takes options of sockets
	Drain       time.Duration // how long after its end a client that is a command may say what came of it

	// Check says what is wrong with a flow. Keys begin behind the flow's own.
	Check func(f *plan.Flow, require plan.Require)

	// Foreign says what keys of this kind a flow of another program has; nil if
	// it has no keys of its own.
	Foreign func(f *plan.Flow, require plan.Require)

	// End removes what must not stay on the host once the flows of a run
	// directory are over; nil if there is nothing.
	End func(dir string) error
}

// Sampling is how the connections of a flow are sampled.
type Sampling int

const (
	ByStream Sampling = iota // each stream by its ports, which the plan has
	ByPort                   // all connections of the server's port, which no other flow has
	ByEnds                   // by the sockets of the ends, which the agent itself is
	BySender                 // by what the sender tells of itself
	Never                    // it is UDP
)

// A Role is which end of a flow an action is.
type Role int

const (
	NoEnd Role = iota
	Server
	Client
)

// A Task is what the agent does for one kind of action.
type Task struct {
	Kind   string // in a plan
	Role   Role
	Serves bool          // it is started before the host says that it is armed, and waits for others, or for packets
	Lead   time.Duration // how long before its time it needs to be known; 0: as what waits, or begins at t0
	Ahead  time.Duration // how long before its time it begins

	// Check says what is wrong with an action of no flow. Keys begin behind the action's own.
	Check func(a plan.Action, require plan.Require)

	// Prepare does what can fail before the host says that it is armed; nil if there is nothing.
	Prepare func(ctx context.Context, r *phase.Run, a plan.Action) error

	// Open makes the agent's own end of a flow, which listens from then on; nil
	// for what is done otherwise.
	Open func(p *plan.Plan, f *plan.Flow) (*End, error)

	// Command is what it runs; nil if the agent itself does it.
	Command func(p *plan.Plan, a plan.Action, t0 time.Time) phase.Command

	// Port is where an action of no flow waits for others, and who may come; nil if it does not.
	Port func(a plan.Action) guard.Port

	// Run does it, and calls started if it serves. Without it, Open or Command is all there is.
	Run func(ctx context.Context, r *phase.Run, a plan.Action, started func()) error
}

var (
	kinds = make(map[string]*Kind)
	tasks = make(map[string]*Task)
)

func addKind(k Kind) { kinds[k.Name] = &k }
func addTask(t Task) { tasks[t.Kind] = &t }

// Of is the kind of a flow of a checked plan.
func Of(f *plan.Flow) *Kind { return kinds[f.Kind] }

// TaskOf is what the agent does for an action of a checked plan.
func TaskOf(a plan.Action) *Task { return tasks[a.Kind] }

// sides are the hosts of the flow's server and client.
func (k *Kind) sides(f *plan.Flow) (server, client string) {
	if k.ServerSends {
		return f.SrcHost, f.DstHost
	}
	return f.DstHost, f.SrcHost
}

// Port is where an action waits for others, and who may come; false if it does not wait.
func Port(p *plan.Plan, a plan.Action) (guard.Port, bool) {
	task := TaskOf(a)
	if task.Role == Server {
		f := p.Flow(a.Flow)
		server, client := f.Dst, f.Src
		if Of(f).ServerSends {
			server, client = client, server
		}
		return guard.Port{Local: netip.AddrPortFrom(server, f.ServerPort), Peer: client}, true
	}
	if task.Port == nil {
		return guard.Port{}, false
	}
	return task.Port(a), true
}

// Ports are those of all actions of this host that wait.
func Ports(p *plan.Plan) (ports []guard.Port) {
	for _, a := range p.Own().Actions {
		if port, waits := Port(p, a); waits {
			ports = append(ports, port)
		}
	}
	return ports
}

// ForgetAll removes what a run of any kind of flow must not leave on the host.
func ForgetAll(dir string) error { return forget(dir, kinds) }

// Forget removes what the flows of a plan must not leave on the host.
func Forget(dir string, p *plan.Plan) error {
	used := make(map[string]*Kind)
	for i := range p.Flows {
		used[p.Flows[i].Kind] = Of(&p.Flows[i])
	}
	return forget(dir, used)
}

func names[T any](table map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}

func forget(dir string, of map[string]*Kind) (err error) {
	for _, k := range of {
		if k.End != nil {
			err = errors.Join(err, k.End(dir))
		}
	}
	return err
}
