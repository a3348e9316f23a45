package wire

// ManagerEndpoint is the reserved name of the endpoint that starts and keeps agents: the supervisor.
const ManagerEndpoint = "manager"

// Commands of the manager endpoint. Spawn goes to any instance, or to one that is named; Agents, Personas and Drain are asked of all
// instances; the others go to the instance that keeps the agent, which Agents tells. Every command is admitted without a target,
// where the caller reaches what was started under it, and with mode any, where an operator reaches all. Stop is also admitted with
// mode self.
const (
	CommandSpawn    = "spawn"    // SpawnRequest, SpawnReply
	CommandAgents   = "agents"   // AgentsRequest, AgentsReply
	CommandAwait    = "await"    // AwaitRequest, AgentStatus
	CommandStop     = "stop"     // StopRequest, StopReply
	CommandRestart  = "restart"  // RestartRequest, AgentStatus
	CommandAttach   = "attach"   // AttachRequest, AttachReply
	CommandInput    = "input"    // InputRequest, InputReply
	CommandPersonas = "personas" // PersonasRequest, PersonasReply
	CommandPersona  = "persona"  // PersonaRequest, PersonaReply
	CommandDrain    = "drain"    // DrainRequest, AgentsReply
)

// ManagerCommands are what who may spawn may ask, besides stopping itself. Input and Drain are an operator's alone.
func ManagerCommands() []string {
	return []string{CommandSpawn, CommandAgents, CommandAwait, CommandStop, CommandRestart, CommandAttach, CommandPersonas, CommandPersona}
}

// TopicAgents is the topic of what a manager tells about its agents, an AgentStatus each; TopicPeer is that by which managers know of
// each other, a ManagerPeer each.
const (
	TopicAgents = "agents"
	TopicPeer   = "peer"
)

// The states of an agent.
const (
	AgentStarting = "starting" // its process runs or is about to, and it is not seen in the space yet
	AgentReady    = "ready"    // it was seen in the space, or needs not be
	AgentStopping = "stopping" // it was asked to end
	AgentExited   = "exited"   // it ended, and is not started again
	AgentFailed   = "failed"   // it could not be started, or ended too often
	AgentBackoff  = "backoff"  // it ended and will be started again
)

// What is known of an agent's process.
const (
	ProcessNone    = "none"    // it has not begun
	ProcessRunning = "running" //
	ProcessExited  = "exited"  //
	ProcessLost    = "lost"    // its seat is gone, and with it what it ended with
)

// StatusUnknown is the mesh fact of an agent about which nobody could be asked.
const StatusUnknown Status = "unknown"

// Bounds of a manager's requests.
const (
	MaxPrompt      = 32 << 10 // bytes of SpawnRequest.Prompt and InputRequest.Text
	MaxPersonaText = 64 << 10 // bytes of PersonaRequest.Text
	MaxLastLines   = 20       // of AgentProcess.LastLines, of at most 400 characters each
	MaxHold        = 60_000   // of DrainRequest.Hold
)

// SpawnRequest asks for an agent.
type SpawnRequest struct {
	// RequestID makes the request repeatable: the same one again is answered with what the first one made. [A-Za-z0-9_-]{1,64}.
	RequestID string `json:"requestId"`
	// Persona is the agent file, by its name on the manager's host; empty with Agent alone.
	Persona string `json:"persona,omitempty"`
	// Name is the actor. Given, it is taken or the request is refused; empty takes the persona's name, with _2, _3 … if it is in use.
	Name string `json:"name,omitempty"`
	// The rest overrides the agent file. Lists that are nil do not, empty ones do.
	Agent          string            `json:"agent,omitempty"` // connector: claude, codex, opencode, gemini, command, script
	Model          string            `json:"model,omitempty"`
	Variant        string            `json:"variant,omitempty"`
	Role           string            `json:"role,omitempty"`
	Cwd            string            `json:"cwd,omitempty"` // absolute, on the manager's host
	Prompt         string            `json:"prompt,omitempty"`
	Command        []string          `json:"command,omitempty"` // of connector command: the program and its arguments
	Env            map[string]string `json:"env,omitempty"`     // added to the allowed environment; never a secret
	Subscribe      []string          `json:"subscribe,omitzero"`
	AllowSubscribe []string          `json:"allowSubscribe,omitzero"`
	AllowPublish   []string          `json:"allowPublish,omitzero"`
	Capabilities   []string          `json:"capabilities,omitzero"` // spawn, role:<role>
	// WithParent ends the agent when the caller ends.
	WithParent bool `json:"withParent,omitempty"`
	// Restart is never, on-failure or always. Default on-failure.
	Restart string `json:"restart,omitempty"`
	// Cols and Rows are the size of the terminal. Default 120 by 32.
	Cols int `json:"cols,omitempty"`
	Rows int `json:"rows,omitempty"`
	// Deploy marks the agents of one team file; empty for none.
	Deploy string `json:"deploy,omitempty"`
}

// SpawnReply says what was begun. The agent is not ready yet; see CommandAwait.
type SpawnReply struct {
	Agent    AgentStatus `json:"agent"`
	Renamed  bool        `json:"renamed,omitempty"`  // the persona's name was in use
	Repeated bool        `json:"repeated,omitempty"` // an earlier request of the same id made it
}

// AgentStatus is one agent as its manager knows it: what of its process, and what of the space.
type AgentStatus struct {
	Principal string       `json:"principal"` // owner.actor
	UID       UID          `json:"uid"`
	Name      string       `json:"name"`
	Persona   string       `json:"persona,omitempty"`
	Connector string       `json:"connector"`
	Model     string       `json:"model,omitempty"`
	Role      string       `json:"role,omitempty"`
	Cwd       string       `json:"cwd,omitempty"`
	Instance  string       `json:"instance"` // of the manager
	Host      string       `json:"host"`     // of the manager
	Parent    string       `json:"parent,omitempty"`
	ParentUID UID          `json:"parentUid,omitempty"`
	Deploy    string       `json:"deploy,omitempty"`
	RequestID string       `json:"requestId"`
	State     string       `json:"state"`
	Since     int64        `json:"since"`            // of the state, ms since 1970
	Reason    string       `json:"reason,omitempty"` // why it failed, backs off or stops
	Process   AgentProcess `json:"process"`
	Mesh      AgentMesh    `json:"mesh"`
	Wakes     bool         `json:"wakes,omitempty"`    // new messages wake it
	Attaches  bool         `json:"attaches,omitempty"` // it has a terminal
}

// Ended reports whether the agent has no process and will not get one by itself.
func (a AgentStatus) Ended() bool { return a.State == AgentExited || a.State == AgentFailed }

// AgentProcess is the process fact.
type AgentProcess struct {
	State     string   `json:"state"`
	PID       int      `json:"pid,omitempty"`
	Started   int64    `json:"started,omitempty"` // ms since 1970
	Ended     int64    `json:"ended,omitempty"`
	Code      int      `json:"code,omitempty"`
	Signal    string   `json:"signal,omitempty"` // such as SIGKILL; then Code is 0
	LastLines []string `json:"lastLines,omitempty"`
	Restarts  int      `json:"restarts,omitempty"`
	Next      int64    `json:"next,omitempty"` // when it starts again, in state backoff
	Left      []string `json:"left,omitempty"` // daemons that it had made and that its end left alone, as "name (pid)"
}

// AgentMesh is the mesh fact.
type AgentMesh struct {
	Status    Status `json:"status"`
	Activity  string `json:"activity,omitempty"`
	Condition string `json:"condition,omitempty"`
	Gone      string `json:"gone,omitempty"`  // why an offline one is, as in RosterEntry
	Since     int64  `json:"since,omitempty"` // of the status, ms since 1970; absent while the roster has nothing of this life
}

// AgentsRequest asks for agents. All fields empty asks for all that the caller may know of.
type AgentsRequest struct {
	Name   string `json:"name,omitempty"` // a name or a principal
	UID    UID    `json:"uid,omitempty"`
	Deploy string `json:"deploy,omitempty"`
	Ended  bool   `json:"ended,omitempty"` // also those that have ended
	Lines  bool   `json:"lines,omitempty"` // with their last lines
}

// AgentsReply is what one instance answers.
type AgentsReply struct {
	Instance string        `json:"instance"`
	Host     string        `json:"host"`
	Agents   []AgentStatus `json:"agents"`
	// Peers are all instances that this one has heard of and that did not say goodbye, itself included.
	Peers []ManagerPeer `json:"peers"`
	// Unreadable are lives that this instance keeps something of which it cannot read, so that it does not know whose they are: their
	// processes may run. Operators alone are told.
	Unreadable []UID `json:"unreadable,omitempty"`
}

// DrainRequest has an instance take no agents for a while, so that all of them can be ended. What it has not accepted by the time of its
// answer, which names every agent that has not ended, it refuses; nor does it start one again that has ended.
type DrainRequest struct {
	// Hold is for how long from now, in milliseconds, at most MaxHold; the last request counts. 0 takes agents again.
	Hold int64 `json:"holdMs"`
}

// ManagerPeer is an instance of the manager.
type ManagerPeer struct {
	Instance string `json:"instance"`
	Host     string `json:"host"`
	Agents   int    `json:"agents"`         // that have not ended, or whose folders cannot be read
	Heard    int64  `json:"heard"`          // ms since 1970
	Left     bool   `json:"left,omitempty"` // its last word
}

// Gone says that it has left and kept no agents: nothing is to be asked of it any more. The agents of one that left with some go on.
func (p ManagerPeer) Gone() bool { return p.Left && p.Agents == 0 }

// AwaitRequest waits until an agent has left one of the states, or the request's deadline is near; then the reply is as it is.
type AwaitRequest struct {
	UID  UID      `json:"uid"`
	From []string `json:"from"` // states, such as starting
}

// StopRequest ends an agent and retires its grant. Without a UID it is the caller (mode self).
type StopRequest struct {
	UID UID `json:"uid,omitempty"`
	// Grace is how long after TERM it is killed, in milliseconds. Default 10,000. Of several stops the one with the least time left counts.
	Grace int64 `json:"graceMs,omitempty"`
	// Force ends it before its minimum lifetime.
	Force bool `json:"force,omitempty"`
	// Children ends what it started too. Those that were started to end with it end whatever this says.
	Children bool `json:"children,omitempty"`
}

// StopReply says what was ended.
type StopReply struct {
	Agent    AgentStatus   `json:"agent"`
	Children []AgentStatus `json:"children,omitempty"`
}

// RestartRequest starts an agent that has ended, or ends one and starts it again, under the same name and life.
type RestartRequest struct {
	UID UID `json:"uid"`
}

// AttachRequest asks for a session at the terminal of an agent.
type AttachRequest struct {
	UID UID `json:"uid"`
	// Drive allows input and makes the terminal the size of the viewer; else the session only looks.
	Drive bool `json:"drive,omitempty"`
	// Cols and Rows are the size of the viewer, at most MaxTerminalSide each; a side of 0 is not known and changes nothing.
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// AttachReply is an offer of a session. It holds for the caller's life, once, for 10 s: the first frame that comes under its subject
// takes it. Bytes flow as SessionSubject says, with the caller's uid as the epoch and the mode of the request, so that the broker pins both
// directions to a life that may still ask for such a session.
type AttachReply struct {
	Session  string `json:"session"`
	Mode     Mode   `json:"mode,omitempty"` // of the request
	Instance string `json:"instance"`
	UID      UID    `json:"uid"`    // of the agent
	Window   int    `json:"window"` // bytes that may be under way without an acknowledgement
	Cols     int    `json:"cols"`   // of the agent's terminal
	Rows     int    `json:"rows"`
}

// InputRequest types a line into the terminal of an agent.
type InputRequest struct {
	UID     UID    `json:"uid"`
	Text    string `json:"text"`
	NoEnter bool   `json:"noEnter,omitempty"`
}

// InputReply says how many bytes were typed.
type InputReply struct {
	Bytes int `json:"bytes"`
}

// PersonasRequest asks for the agent files of each host; with a name, for one with its text and, with mode owner or any, what it allows.
type PersonasRequest struct {
	Name string `json:"name,omitempty"`
}

// PersonasReply is what one instance has.
type PersonasReply struct {
	Instance string    `json:"instance"`
	Host     string    `json:"host"`
	Personas []Persona `json:"personas"`
}

// Persona is an agent file as peers may see it.
type Persona struct {
	Name        string `json:"name"`
	Role        string `json:"role,omitempty"`
	Description string `json:"description,omitempty"`
	Connector   string `json:"connector,omitempty"`
	Model       string `json:"model,omitempty"`
	Owner       string `json:"owner,omitempty"` // who defined it, a principal; empty for the files of the host
	Text        string `json:"text,omitempty"`
	Invalid     string `json:"invalid,omitempty"` // what is wrong with the file

	// What the file allows, with what it leaves out filled in. Nil says that it was not told: a supervisor tells it of one file that was
	// asked for by its name with mode owner or any, and an empty list then.
	Capabilities   []string `json:"capabilities,omitzero"`
	Subscribe      []string `json:"subscribe,omitzero"`
	AllowSubscribe []string `json:"allowSubscribe,omitzero"`
	AllowPublish   []string `json:"allowPublish,omitzero"`
}

// PersonaRequest defines an agent file, or changes text and model of one that the caller defined. It never changes access, and what a
// caller without mode any defines allows no more than the caller holds: a role is refused.
type PersonaRequest struct {
	Name        string `json:"name"`
	Text        string `json:"text"`
	Model       string `json:"model,omitempty"`
	Description string `json:"description,omitempty"`
	Role        string `json:"role,omitempty"`
	Connector   string `json:"connector,omitempty"`
}

// PersonaReply says what stands now.
type PersonaReply struct {
	Persona Persona `json:"persona"`
	Created bool    `json:"created,omitempty"`
}
