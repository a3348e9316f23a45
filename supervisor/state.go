package supervisor

import (
	"time"

	"github.com/cotal-go/cotal/wire"
)

// State is where an agent is, as a value. [Next] alone changes it. It is kept on disk, so that the next supervisor goes on from it.
type State struct {
	// Phase is one of the states of package wire; empty before the first start.
	Phase string    `json:"phase"`
	Since time.Time `json:"since"` // of the phase
	// Reason says why it failed, waits or stops, for a person.
	Reason string `json:"reason,omitempty"`
	// Trouble is what went wrong with the last try of a step that is tried again.
	Trouble string `json:"trouble,omitempty"`
	// Goal is what is wanted of it.
	Goal Goal `json:"goal"`
	// Process is what is known of the process: one of the process states of package wire.
	Process string `json:"process"`
	// Begun says that a process may exist which nothing was heard of yet.
	Begun   bool      `json:"begun,omitempty"`
	PID     int       `json:"pid,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`
	Ending  Ending    `json:"ending"`
	// Runs counts the starts, the present one included. Each has a folder of its own, so that no two are one.
	Runs int `json:"runs"`
	// Restarts counts the starts that followed an end without being asked for.
	Restarts int         `json:"restarts,omitempty"`
	Ends     []time.Time `json:"ends,omitempty"` // see Policy.Decide
	// Due is when the next step comes by itself, zero for never: a start, another try to stop, or a retirement.
	Due time.Time `json:"due,omitzero"`
	// Grant is what is left of its grant.
	Grant GrantPhase `json:"grant"`
	// Tries counts what failed in a row: stops, or retirements.
	Tries int           `json:"tries,omitempty"`
	Grace time.Duration `json:"grace,omitempty"` // of the stop that was asked for
}

// Goal is what is wanted of an agent.
type Goal string

// The goals.
const (
	GoalRun     Goal = "run"
	GoalRestart Goal = "restart" // end, then run
	GoalEnd     Goal = "end"     // end, then retire
)

// GrantPhase is what is left of the grant of an agent.
type GrantPhase string

// The phases of a grant.
const (
	GrantHeld      GrantPhase = "held"
	GrantSuspended GrantPhase = "suspended" // it stands, but nobody can come back with it before the next start
	GrantRetiring  GrantPhase = "retiring"
	GrantRetired   GrantPhase = "retired"
)

// Rules are what Next goes by besides the state. They do not change in the life of an agent.
type Rules struct {
	Policy Policy `json:"policy"`
	// Joins says that the agent is ready when it is seen in the space; else when its process runs.
	Joins bool `json:"joins"`
	// Linger is how long an agent that ended by itself keeps its name, so that it can be started again.
	Linger time.Duration `json:"linger"`
}

// EventKind says what happened.
type EventKind string

// The events.
const (
	EventBegin      EventKind = "begin"       // start it for the first time or, with Run, again when nothing came of that
	EventStarted    EventKind = "started"     // its process runs; PID and Began are set
	EventNotStarted EventKind = "not-started" // and nothing of it is left; Reason, and Final when trying again is useless
	EventSeen       EventKind = "seen"        // it was seen in the space
	EventEnded      EventKind = "ended"       // its process ended, and nothing of it is left; Ending
	EventNotStopped EventKind = "not-stopped" // what is left of its process could not be ended, or is not known; Reason
	EventLost       EventKind = "lost"        // its seat is gone, and what that left is not ended yet, or cannot be known; Reason
	EventStop       EventKind = "stop"        // somebody wants it to end; Grace, Reason
	EventRestart    EventKind = "restart"     // somebody wants it to begin anew; Grace
	EventDue        EventKind = "due"         // State.Due has come
	EventTrouble    EventKind = "trouble"     // a step is tried again; Reason
	EventNudge      EventKind = "nudge"       // what a retirement waits for may be over
	EventRetired    EventKind = "retired"     // the authority has retired its grant
	EventNotRetired EventKind = "not-retired" // or has not, or it must wait; Reason
)

// Event is one thing that happened, at At. Which of the other fields are set is said at the kinds. Run is the run that it is about,
// and 0 for the agent as such: what comes late from an earlier run changes nothing.
type Event struct {
	Kind   EventKind
	At     time.Time
	Run    int
	PID    int
	Began  time.Time
	Ending Ending
	Reason string
	Final  bool
	Grace  time.Duration
}

// Action is one thing to do, whose outcome comes back as an event.
type Action string

// The actions.
const (
	ActStart   Action = "start"   // run number State.Runs; answered by EventStarted or EventNotStarted, then by EventEnded
	ActStop    Action = "stop"    // with State.Grace; answered by EventEnded or EventNotStopped
	ActSuspend Action = "suspend" // the grant; not answered
	ActRetire  Action = "retire"  // the grant; answered by EventRetired or EventNotRetired
)

// DefaultGrace is how long after TERM an agent is killed when nobody says otherwise.
const DefaultGrace = 10 * time.Second

const (
	retryMin = time.Second
	retryMax = time.Minute
)

// Next returns the state after an event and what to do. It is a pure function. An event that means nothing in a state changes
// nothing, so that one which comes late or twice does no harm.
func Next(s State, r Rules, e Event) (State, []Action) {
	m := machine{State: s, rules: r, at: e.At}
	if e.Run != 0 && e.Run != s.Runs {
		return s, nil
	}
	switch e.Kind {
	case EventBegin:
		switch {
		case m.Phase == "":
			m.start("")
		case e.Run == 0 || !m.Begun: // it has begun, perhaps anew a moment ago
		case m.Goal == GoalRun:
			m.start("")
		default: // something else was wanted of it meanwhile
			m.notStarted(e)
		}
	case EventStarted:
		m.started(e)
	case EventNotStarted:
		m.notStarted(e)
	case EventSeen:
		if m.Phase == wire.AgentStarting && m.Process == wire.ProcessRunning {
			m.enter(wire.AgentReady, "")
		}
	case EventEnded:
		m.ended(e)
	case EventNotStopped:
		if m.Phase == wire.AgentStopping {
			m.retry(e.Reason)
		}
	case EventLost:
		m.lost(e)
	case EventStop:
		m.stop(e)
	case EventRestart:
		m.restart(e)
	case EventDue:
		m.due()
	case EventTrouble:
		if m.alive() {
			m.Trouble = e.Reason
		}
	case EventNudge:
		if m.Grant == GrantRetiring && !m.Due.IsZero() { // it waits
			m.Due = time.Time{}
			m.do(ActRetire)
		}
	case EventRetired:
		if m.Grant == GrantRetiring {
			m.Grant, m.Due, m.Tries, m.Trouble = GrantRetired, time.Time{}, 0, ""
		}
	case EventNotRetired:
		if m.Grant == GrantRetiring {
			m.retry(e.Reason)
		}
	}
	return m.State, m.actions
}

// over says that the agent has ended and does not run again by itself.
func (s State) over() bool { return s.Phase == wire.AgentExited || s.Phase == wire.AgentFailed }

// lingers says that the agent has ended by itself, and keeps its name and its grant so that it can be started again.
func (s State) lingers() bool { return s.over() && s.Grant == GrantSuspended }

// machine is one step of Next.
type machine struct {
	State
	rules   Rules
	at      time.Time
	actions []Action
}

func (m *machine) do(a ...Action) { m.actions = append(m.actions, a...) }

func (m *machine) enter(phase, reason string) {
	if m.Phase != phase {
		m.Phase, m.Since = phase, m.at
	}
	m.Reason = reason
	m.Due, m.Tries, m.Trouble = time.Time{}, 0, ""
}

// alive says that there is or may be a process.
func (m *machine) alive() bool { return m.Begun || m.Process == wire.ProcessRunning }

func (m *machine) start(reason string) {
	m.enter(wire.AgentStarting, reason)
	m.Goal, m.Grant = GoalRun, GrantHeld
	m.Process, m.Begun, m.PID = wire.ProcessNone, true, 0
	m.Started, m.Ended, m.Ending = time.Time{}, time.Time{}, Ending{}
	m.Runs++
	m.do(ActStart)
}

func (m *machine) started(e Event) {
	if !m.alive() {
		return
	}
	first := m.Process != wire.ProcessRunning
	m.Process, m.Begun, m.PID, m.Started = wire.ProcessRunning, false, e.PID, e.Began
	if m.Phase == wire.AgentStopping && m.Goal == GoalRun { // it was not lost after all
		m.enter(wire.AgentStarting, "")
	}
	switch {
	case m.Phase == wire.AgentStopping && first:
		m.do(ActStop)
	case m.Phase == wire.AgentStarting && !m.rules.Joins:
		m.enter(wire.AgentReady, "")
	}
	m.Trouble = ""
}

// lost makes a run one whose end nobody saw, and which is not over before nothing of it is left.
func (m *machine) lost(e Event) {
	if !m.alive() {
		return
	}
	m.Process, m.Begun = wire.ProcessLost, true
	if m.Phase != wire.AgentStopping {
		m.enter(wire.AgentStopping, "its seat is gone")
	}
	m.retry(e.Reason)
}

func (m *machine) notStarted(e Event) {
	if !m.Begun {
		return
	}
	m.Process, m.Begun, m.Ended = wire.ProcessNone, false, m.at
	switch {
	case m.Goal == GoalEnd:
		m.retire(wire.AgentExited, m.Reason)
	case m.Goal == GoalRestart:
		m.start("")
	case e.Final:
		m.stay(wire.AgentFailed, e.Reason)
	default:
		d := m.rules.Policy.Decide(m.Ends, time.Time{}, Ending{Code: -1}, m.at)
		m.Ends = d.Ends
		m.follow(d, e.Reason)
	}
}

func (m *machine) ended(e Event) {
	if !m.alive() {
		return
	}
	m.Process, m.Begun, m.PID, m.Ended, m.Ending = wire.ProcessExited, false, 0, m.at, e.Ending
	if e.Ending.Lost {
		m.Process = wire.ProcessLost
	}
	switch m.Goal {
	case GoalEnd:
		m.retire(wire.AgentExited, m.Reason)
		return
	case GoalRestart:
		m.start("")
		return
	}
	d := m.rules.Policy.Decide(m.Ends, m.Started, e.Ending, m.at)
	m.Ends = d.Ends
	m.follow(d, d.Reason)
}

// follow does what the policy decided.
func (m *machine) follow(d Decision, reason string) {
	if !d.Again {
		m.stay(d.State, reason)
		return
	}
	m.enter(wire.AgentBackoff, reason)
	m.Due = m.at.Add(d.Wait)
	m.Grant = GrantSuspended
	m.do(ActSuspend)
}

// stay leaves an agent where it ended by itself. It can be started again until its name is wanted or it has lingered.
func (m *machine) stay(phase, reason string) {
	m.enter(phase, reason)
	m.Due = m.at.Add(m.rules.Linger)
	m.Grant = GrantSuspended
	m.do(ActSuspend)
}

func (m *machine) retire(phase, reason string) {
	m.enter(phase, reason)
	m.Grant = GrantRetiring
	m.do(ActRetire)
}

func (m *machine) stop(e Event) {
	switch {
	case m.lingers():
		m.Goal = GoalEnd
		m.retire(m.Phase, m.Reason)
	case m.over():
	case m.Phase == wire.AgentStopping:
		m.Goal, m.Reason = GoalEnd, e.Reason
		if g := graceOf(e); g < m.Grace {
			m.Grace = g
			if m.Process == wire.ProcessRunning { // the seat takes the shorter one for the stop that is under way
				m.Due = time.Time{}
				m.do(ActStop)
			}
		}
	case m.alive():
		m.Goal, m.Grace = GoalEnd, graceOf(e)
		m.enter(wire.AgentStopping, e.Reason)
		if m.Process == wire.ProcessRunning {
			m.do(ActStop)
		}
	default: // backoff, or never begun
		m.Goal = GoalEnd
		m.retire(wire.AgentExited, e.Reason)
	}
}

func graceOf(e Event) time.Duration {
	if e.Grace > 0 {
		return e.Grace
	}
	return DefaultGrace
}

func (m *machine) restart(e Event) {
	switch {
	case m.Grant == GrantRetiring, m.Grant == GrantRetired, m.Phase == wire.AgentStopping:
	case m.Process == wire.ProcessRunning:
		m.Goal, m.Grace, m.Ends = GoalRestart, graceOf(e), nil
		m.enter(wire.AgentStopping, "to be started again")
		m.do(ActStop)
	case m.Begun: // it is being started anyway
	default:
		m.Ends = nil
		m.start("")
	}
}

func (m *machine) due() {
	if m.Due.IsZero() || m.at.Before(m.Due) {
		return
	}
	m.Due = time.Time{}
	switch {
	case m.Grant == GrantRetiring:
		m.do(ActRetire)
	case m.Phase == wire.AgentBackoff:
		m.Restarts++
		m.start(m.Reason)
	case m.Phase == wire.AgentStopping && m.Process == wire.ProcessRunning:
		m.do(ActStop)
	case m.lingers():
		m.Goal = GoalEnd
		m.retire(m.Phase, m.Reason)
	}
}

// retry plans another try, later each time.
func (m *machine) retry(reason string) {
	m.Trouble = reason
	wait := retryMax
	if m.Tries < 6 {
		wait = retryMin << m.Tries
	}
	m.Tries++
	m.Due = m.at.Add(min(wait, retryMax))
}

// Recover returns the state of an agent whose supervisor was away: a process that ran may exist or not, which is found out next and
// told by EventStarted, EventEnded, EventNotStarted or EventBegin; and a retirement goes on at once.
func Recover(s State, now time.Time) State {
	if s.Process == wire.ProcessRunning {
		s.Process, s.Begun = wire.ProcessNone, true
	}
	if s.Grant == GrantRetiring {
		s.Due = now
	}
	return s
}
