// Package config answers which mesh, space and credential a command means, and from where each answer came.
//
// Start with [Resolve]. The order is the same for every value: flag, environment, the project (the nearest
// .cotal folder upwards from the working folder), a mesh this machine knows (the current one, or the only one),
// default. A value that was named explicitly narrows the rest: with --space the project or mesh that holds that
// space supplies the server, and with --server the mesh at that address supplies the space.
//
// The package is the only one that reads settings from files and environment, and it writes the few records that
// `cotal up` keeps for other commands: the project's settings ([Project.SaveSettings]), the record of the run
// ([Project.SaveRun]) and the machine's list of meshes ([Machine.Save]). All of them are readable text without
// secrets, written atomically. A file that cannot be read as what it should be is an error that names the file,
// never a silent default; so is a key that nobody knows.
//
// Values are plain data. Functions that write may race between processes: the last whole record wins.
package config
