package mcpserver

// unixModes says that permissions of files say who may open them. Here the folder's access list does, which the launcher sets.
const unixModes = false
