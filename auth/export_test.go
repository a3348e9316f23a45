package auth

// AgentRenew is what the command of that name does.
var AgentRenew = (*Authority).agentRenew
