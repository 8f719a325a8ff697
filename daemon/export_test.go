package daemon

// SyncDir is syncDir, for tests of whole deployments.
var SyncDir = &syncDir
