package mcpserver

import (
	"bytes"
	"io"
	"os"
	"regexp"
)

// noResponse is what Gemini CLI says of a turn in which its model said nothing.
const noResponse = "[no response text]"

// maxRecord bounds what is read of the end of the record of a conversation, in bytes.
const maxRecord = 16 << 20

// pageMark ends the text of a hook. Gemini CLI records it with the conversation; no text of a peer can hold it, for each line of that is marked.
const pageMark = "This was page %s.\n"

// recordedMark is pageMark in the record, which is JSON.
var recordedMark = regexp.MustCompile(`\\nThis was page (p[a-z0-9]{6}-[0-9]+)\.\\n`)

// geminiStop says what became of the turn. Gemini CLI tells of the end of a turn that was cancelled or refused as of any other, and takes
// back all of it, also what the model had said and done. Its record of the conversation says what it keeps.
func (h hostInput) geminiStop(d *Detail) {
	if h.PromptResponse != nil && (*h.PromptResponse == "" || *h.PromptResponse == noResponse) {
		d.Lives, d.Dropped = false, true
		return
	}
	if page, ok := recordedPage(h.TranscriptPath); ok {
		d.Page = page
		d.Lives = d.Lives && page != ""
	}
}

// recordedPage returns the last page that a record of Gemini CLI has, "" for none, and false for a record that cannot be read.
func recordedPage(path string) (string, bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = f.Close() }() // it was read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxRecord), maxRecord))
	if err != nil {
		return "", false
	}
	if i := bytes.LastIndex(data, []byte(`{"$set":{"messages":`)); i >= 0 { // all that is kept, anew; it is appended to
		data = data[i:]
	}
	all := recordedMark.FindAllSubmatch(data, -1)
	if len(all) == 0 {
		return "", true
	}
	return string(all[len(all)-1][1]), true
}
