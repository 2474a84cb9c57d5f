package server

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gosoftroce/rocev2/transport/tap"
)

// captureStart begins a recording.
func (h *handlers) captureStart(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Device string `json:"device"`
		Filter string `json:"filter"`
		Bytes  int    `json:"bytes"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(&ask)
	if err == nil && d.More() {
		err = errors.New("something comes after it")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		refuse(w, http.StatusBadRequest, "the body is not what is expected, such as {\"filter\": \"peer=192.0.2.7\"}: %s", clip(err.Error()))
		return
	}
	devices, err := h.devicesNamed(ask.Device)
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err.Error())
		return
	}
	var taps []*tap.Switch
	for _, d := range devices {
		taps = append(taps, d.taps...)
	}
	if err := h.recorder.start(time.Now(), taps, ask.Device, ask.Filter, ask.Bytes); err != nil {
		refuse(w, http.StatusBadRequest, "%s", clip(err.Error()))
		return
	}
	answer(w, http.StatusOK, h.recorder.state())
}

func (h *handlers) captureStop(w http.ResponseWriter, _ *http.Request) {
	if err := h.recorder.stop(time.Now()); err != nil {
		refuse(w, http.StatusConflict, "%s", err.Error())
		return
	}
	answer(w, http.StatusOK, h.recorder.state())
}

func (h *handlers) captureDownload(w http.ResponseWriter, _ *http.Request) {
	if h.recorder.state().Size == 0 {
		refuse(w, http.StatusNotFound, "nothing was recorded yet")
		return
	}
	w.Header().Set("Content-Type", "application/x-pcapng")
	w.Header().Set("Content-Disposition", `attachment; filename="rocev2.pcapng"`)
	if err := h.recorder.writeTo(w); err != nil {
		h.log.Debug("capture download", "error", err)
	}
}
