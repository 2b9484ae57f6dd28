# an XML tree transformed
# needs: xsltproc
# run: xsltproc work.xsl work.xml
awk 'BEGIN { print "<all>"; for (i = 0; i < 14000; i++) printf "<item id=\"%d\" kind=\"k%d\"><name>w%d</name><price cur=\"e\">%d</price><tag>t%d</tag></item>\n", i, i % 17, i * 7919 % 5003, i * 37 % 1000, i % 5; print "</all>" }' >work.xml
cat >work.xsl <<'END'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="kind" match="item" use="@kind"/>
<xsl:template match="/all"><table>
<xsl:for-each select="item[generate-id() = generate-id(key('kind', @kind)[1])]"><xsl:sort select="@kind"/>
<kind name="{@kind}" count="{count(key('kind', @kind))}" sum="{sum(key('kind', @kind)/price)}">
<xsl:apply-templates select="key('kind', @kind)"><xsl:sort select="name"/><xsl:sort select="price" data-type="number"/></xsl:apply-templates></kind>
</xsl:for-each></table></xsl:template>
<xsl:template match="item"><row><xsl:value-of select="concat(name, ' ', price)"/><xsl:copy-of select="tag"/></row></xsl:template>
</xsl:stylesheet>
END
