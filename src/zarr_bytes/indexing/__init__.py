"""Which bytes a selection needs: selection, division into chunks, byte ranges, plan."""
