package kind

import (
	"time"

	"dumbbell/collectors/tcpinfo"
)

// Tests of M-Lab's Network Diagnostic Tool, whose programs are commands of the plan.

func init() {
	upload := Kind{
		Name: "ndt7_upload", Program: "command", Protocol: tcpinfo.TCP, KernelPorts: true, Sampling: ByPort, Drain: ndtDrain, Check: checkCommand,
	}
	download := upload
	download.Name, download.ServerSends = "ndt7_download", true
	addKind(upload)
	addKind(download)
}

// ndtDrain is how long after its test a client of NDT may take to say what came of it.
const ndtDrain = 3 * time.Second
